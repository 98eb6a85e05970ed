//! A build's log token: it stands for the worker token that claimed the build, in the few calls about that build that it is good for.

use crate::{Rejection, Shell, WorkerToken, auth};
use http::HeaderMap;
use http::request::Parts;
use protocol::runner::FETCH_ID;
use uuid::Uuid;

/// What every log token begins with, and no other token.
pub(crate) const PREFIX: &str = "cbl_";

/// Whose a call about `build` is by its `token`: the id of a worker token, and its digest unless the build's log token stands for it.
///
/// # Errors
///
/// [`Rejection::NotFound`] if it is another build's log token, which is like another token's build.
pub fn caller(shell: &Shell, build: Uuid, token: &str) -> Result<(String, Option<Vec<u8>>), Rejection> {
    if let Some(claimed_by) = claimed_by(shell, build, token)? {
        return Ok((claimed_by, None));
    }
    let WorkerToken { id, digest } = WorkerToken::of(token);
    Ok((id, Some(digest)))
}

/// The id of the worker token that `token` stands for; `None`: it is no log token.
fn claimed_by(shell: &Shell, build: Uuid, token: &str) -> Result<Option<String>, Rejection> {
    if !token.starts_with(PREFIX) {
        return Ok(None);
    }
    shell.seal.read_log_token(build, token).map(Some).ok_or(Rejection::NotFound)
}

/// The runner of a build's steps, by the build's log token and the number that it gave itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The id of the worker token that claimed the build. It may have been revoked since.
    pub claimed_by: String,
    /// The runner's number, by which it fetches the job.
    pub fetcher: Uuid,
}

impl Runner {
    /// The runner of `build` that calls.
    ///
    /// # Errors
    ///
    /// [`Rejection::Unauthorized`] if it comes with no log token: a worker's own is refused, whose job is the claim's answer;
    /// [`Rejection::NotFound`] if with another build's; [`Rejection::BadRequest`] if it does not say its number.
    pub fn of(shell: &Shell, build: Uuid, parts: &Parts) -> Result<Self, Rejection> {
        let claimed_by = claimed_by(shell, build, auth::bearer(parts)?)?.ok_or(Rejection::Unauthorized)?;
        Ok(Self { claimed_by, fetcher: fetcher(&parts.headers)? })
    }
}

/// Not in the address, which others log.
fn fetcher(headers: &HeaderMap) -> Result<Uuid, Rejection> {
    let given = headers.get(FETCH_ID).and_then(|value| protocol::id::parse(value.to_str().ok()?));
    given.ok_or_else(|| Rejection::BadRequest("send Fetch-Id: a UUID that this fetcher made for itself".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_fetcher_says_which_one_it_is() {
        let id = Uuid::from_u128(7);
        let given = |value: &str| {
            let value = HeaderValue::from_str(value).expect("a value");
            fetcher(&HeaderMap::from_iter([(FETCH_ID.parse().expect("a name"), value)]))
        };
        assert!(matches!(given(&id.to_string()), Ok(known) if known == id));
        for refused in [given(""), given("seven"), fetcher(&HeaderMap::new())] {
            assert!(matches!(refused, Err(Rejection::BadRequest(_))));
        }
    }
}
