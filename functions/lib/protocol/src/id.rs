//! Ids as callers write them: one spelling each, so that an id can be searched for as text.

use serde::{Deserialize as _, Deserializer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// An id in its hyphenated form, in either case; `None` for any other text. Without hyphens, in braces or as `urn:uuid:` it is none.
#[must_use]
pub fn parse(text: &str) -> Option<Uuid> {
    text.parse::<Hyphenated>().ok().map(Uuid::from)
}

/// The same within a body.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
    Hyphenated::deserialize(deserializer).map(Uuid::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_hyphens_and_nothing_around_it() {
        let id = Uuid::from_u128(0x01a2_308a_0000_7000_8000_0000_00ab_cdef);
        for text in [id.to_string(), id.to_string().to_uppercase()] {
            assert_eq!(parse(&text), Some(id), "{text}");
        }
        for text in
            [id.simple().to_string(), id.braced().to_string(), id.urn().to_string(), format!(" {id}"), String::new()]
        {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}
