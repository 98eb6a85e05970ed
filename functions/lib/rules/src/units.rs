//! The two quantities that every rule is about: a whole number of seconds, and an instant of the database's clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A number of whole seconds; what is reserved and charged. Never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub u32);

impl Seconds {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `self - other`, or zero where that would be negative.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self + other`, or the greatest number of seconds there is.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The seconds that have begun in `ms` milliseconds: 0 is 0, 1 is 1, 1000 is 1, 1001 is 2.
    #[must_use]
    pub fn ceil_from_ms(ms: u64) -> Self {
        Self(u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX))
    }

    /// The same as milliseconds.
    #[must_use]
    pub fn as_ms(self) -> u64 {
        u64::from(self.0) * 1000
    }
}

/// An instant of the database's clock, in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This instant and `by` more.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long before `self` the instant `earlier` was, in milliseconds; zero if it was not before.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
