//! Who calls. A web-app's and an operator's token is looked up before the handler; a worker's is checked by the one
//! statement that its call runs, so that it costs no round trip of its own (but where the call is refused before: `sender`).
//!
//! With the token comes how strictly a call is read: a web-app's and an operator's takes no parameter that it does not know, a
//! worker's ignores it, since workers and functions are upgraded apart.

use crate::{Rejection, Shell, query};
use axum::extract::FromRequestParts;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;
use protocol::admin::TokenKind;
use rand::TryRngCore as _;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A web-app's token: what it does is done in this workspace.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// The token's workspace.
    pub workspace: Uuid,
}

/// An operator's token.
#[derive(Clone, Copy, Debug)]
pub struct Operator;

/// A token that claims to be a worker's, by its digest. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerToken {
    /// The first 8 hex digits of the digest.
    pub id: String,
    /// The SHA-256 of the token.
    pub digest: Vec<u8>,
}

impl WorkerToken {
    /// The digest of `token`, and the id made of it.
    #[must_use]
    pub fn of(token: &str) -> Self {
        let digest = Sha256::digest(token).to_vec();
        Self { id: hex::encode(&digest[..4]), digest }
    }

    /// The id and the digest, as the store takes them.
    #[must_use]
    pub fn parts(&self) -> (&str, &[u8]) {
        (&self.id, &self.digest)
    }
}

/// A new token: 32 random bytes, with a prefix that says what it is for.
///
/// # Panics
///
/// If the operating system has no randomness.
#[must_use]
pub fn new_token(kind: TokenKind) -> String {
    let mut bytes = [0_u8; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).expect("the operating system gives random bytes");
    let prefix = match kind {
        TokenKind::Worker => "cbw",
        TokenKind::Api => "cba",
        TokenKind::Operator => "cbo",
    };
    format!("{prefix}_{}", hex::encode(bytes))
}

/// The bearer token of a request.
///
/// # Errors
///
/// [`Rejection::Unauthorized`] if there is none.
pub fn bearer(parts: &Parts) -> Result<&str, Rejection> {
    bearer_in(parts.headers.get(AUTHORIZATION))
}

pub(crate) fn bearer_in(authorization: Option<&HeaderValue>) -> Result<&str, Rejection> {
    let value = authorization.and_then(|value| value.to_str().ok()).ok_or(Rejection::Unauthorized)?;
    let (scheme, token) = value.split_once(' ').ok_or(Rejection::Unauthorized)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= 512 {
        Ok(token)
    } else {
        Err(Rejection::Unauthorized)
    }
}

async fn known(parts: &Parts, shell: &Shell, kind: TokenKind) -> Result<Option<Uuid>, Rejection> {
    let token = WorkerToken::of(bearer(parts)?);
    let known = store::tokens::check(&shell.store, &token.id, &token.digest, kind).await?;
    known.ok_or(Rejection::Unauthorized)
}

impl FromRequestParts<Shell> for Api {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, shell: &Shell) -> Result<Self, Rejection> {
        let workspace = known(parts, shell, TokenKind::Api).await?.ok_or(Rejection::Unauthorized)?;
        query::check(parts)?;
        Ok(Self { workspace })
    }
}

impl FromRequestParts<Shell> for Operator {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, shell: &Shell) -> Result<Self, Rejection> {
        known(parts, shell, TokenKind::Operator).await?;
        query::check(parts)?;
        Ok(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkerToken {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        bearer(parts).map(Self::of)
    }
}
