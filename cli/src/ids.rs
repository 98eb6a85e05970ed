//! Ids as they are typed: what looks like none is told before any board is asked.

use uuid::Uuid;

/// An id that shows what one looks like.
const LIKE: &str = "01a2308a-c2ff-7509-a0e1-a6168fbb6d21";

/// A build's id.
///
/// # Errors
///
/// That it can't be one, what one looks like, and where those that there are stand.
pub fn of_build(text: &str) -> Result<Uuid, String> {
    id(text, "build")
}

/// A preview's id.
///
/// # Errors
///
/// As for a build's.
pub fn of_preview(text: &str) -> Result<Uuid, String> {
    id(text, "preview")
}

fn id(text: &str, thing: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text.trim()).map_err(|_| {
        format!("not the id of a {thing}; one looks like {LIKE}, and `callboard {thing} list` shows those there are")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_is_told_what_one_looks_like_and_where_to_find_it() {
        assert_eq!(of_build(LIKE).unwrap().to_string(), LIKE);
        for text in ["", "app", "01a2308a", "01a2308a-…", "-"] {
            let told = of_build(text).unwrap_err();
            assert!(told.contains(LIKE) && told.contains("`callboard build list`"), "{told}");
        }
        assert!(of_preview("x").unwrap_err().contains("`callboard preview list`"));
    }
}
