//! Builds, newest first, from as many pages as it takes.

use crate::answer::Answer;
use localstack::client::{Client, Failed};
use protocol::Status;
use protocol::build::Builds;

/// The most builds of one page.
const PAGE: usize = 100;

/// Which builds.
pub(super) struct Asked {
    /// Those in this state.
    pub(super) status: Option<Status>,
    /// Those of this pipeline.
    pub(super) pipeline: Option<String>,
}

impl Asked {
    /// Whether all builds are asked for.
    pub(super) fn is_for_all(&self) -> bool {
        self.status.is_none() && self.pipeline.is_none()
    }
}

/// At most `limit` builds.
pub(super) async fn read(asked: &Asked, limit: u32, board: &Client) -> Result<Answer<Builds>, Failed> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut all = page(asked, limit, None, board).await?;
    while let Some(cursor) = all.value.next_cursor.take() {
        let missing = limit.saturating_sub(all.value.builds.len());
        if missing == 0 {
            break;
        }
        let next = page(asked, missing, Some(cursor), board).await?;
        join(&mut all, next);
    }
    Ok(all)
}

async fn page(asked: &Asked, most: usize, cursor: Option<String>, board: &Client) -> Result<Answer<Builds>, Failed> {
    let fields = [
        ("status", asked.status.map(|status| status.to_string())),
        ("pipeline", asked.pipeline.clone()),
        ("limit", Some(most.min(PAGE).to_string())),
        ("cursor", cursor),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(&value?))));
    board.get(&format!("builds?{}", fields.collect::<Vec<_>>().join("&"))).await
}

/// Puts a page behind those before it, also in the JSON.
fn join(all: &mut Answer<Builds>, mut next: Answer<Builds>) {
    all.value.builds.append(&mut next.value.builds);
    all.value.next_cursor = next.value.next_cursor;
    if let (Some(builds), Some(more)) = (all.json["builds"].as_array_mut(), next.json["builds"].as_array_mut()) {
        builds.append(more);
    }
    let cursor = next.json["next_cursor"].take();
    if let Some(json) = all.json.as_object_mut() {
        json.remove("next_cursor");
        json.extend((!cursor.is_null()).then(|| ("next_cursor".to_owned(), cursor)));
    }
}

/// A value as it stands in an address.
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pages_become_one_and_the_last_cursor_stays() {
        let page = |json: Value| serde_json::from_value::<Answer<Builds>>(json).unwrap();
        let mut all = page(json!({ "builds": [], "next_cursor": "a" }));
        join(&mut all, page(json!({ "builds": [], "next_cursor": "b", "newer": 1 })));
        assert_eq!((all.value.next_cursor.as_deref(), &all.json["next_cursor"]), (Some("b"), &json!("b")));
        join(&mut all, page(json!({ "builds": [] })));
        assert_eq!((all.value.next_cursor, all.json), (None, json!({ "builds": [] })));
    }

    #[test]
    fn a_value_in_an_address_separates_nothing() {
        assert_eq!(escaped("a&b=c/é"), "a%26b%3Dc%2F%C3%A9");
    }
}
