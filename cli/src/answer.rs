//! What the board answered, twice: as this release reads it, and as it came, for `--json`. So a program sees also the
//! fields that a newer board has.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// As this release reads it.
    pub value: T,
    /// As it came.
    pub json: Value,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Answer<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(from)?;
        let value = T::deserialize(&json).map_err(D::Error::custom)?;
        Ok(Self { value, json })
    }
}
