//! Which trace a build belongs to, as W3C's Trace Context writes it: the web-app says it at admission, the board in the job, and the worker
//! in its calls about the build (docs/decisions/0019).

use serde::{Deserialize as _, Deserializer, Serialize, Serializer};
use std::fmt;

/// The header that carries it.
pub const TRACEPARENT: &str = "traceparent";

/// How long one is in the version that we write: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
/// The flags that mean something: the caller records, and the id is random. All others are to be sent as zero.
const FLAGS: u8 = 0b11;
/// The id is random.
const RANDOM: u8 = 0b10;

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    trace: TraceId,
    parent: u64,
    flags: u8,
}

/// A trace's id: what its lines are found by, in every log that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

impl Traceparent {
    /// A trace of our own, made of two random numbers. Nobody records it, so far as we know.
    #[must_use]
    pub fn random(trace: u128, parent: u64) -> Self {
        // Zero is no id.
        Self { trace: TraceId(trace.max(1)), parent: parent.max(1), flags: RANDOM }
    }

    /// Reads one, also of a later version, which begins as this one does. `None` for whatever is not exactly one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = text.as_bytes().get(..LENGTH)?;
        let rest = &text.as_bytes()[LENGTH..];
        let version = number(&known[..2])?;
        let is_whole = if version == 0 { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        let is_apart = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        if version == 0xff || !is_whole || !is_apart {
            return None;
        }
        let (trace, parent) = (number(&known[3..35])?, u64::try_from(number(&known[36..52])?).ok()?);
        let flags = u8::try_from(number(&known[53..])?).ok()? & FLAGS;
        (trace != 0 && parent != 0).then_some(Self { trace: TraceId(trace), parent, flags })
    }

    /// The id of the trace.
    #[must_use]
    pub fn trace_id(self) -> TraceId {
        self.trace
    }
}

/// Hexadecimal digits, of which those above nine are lower case only.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{:016x}-{:02x}", self.trace, self.parent, self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Traceparent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One that is read where a build must not be lost for it: what can't be read is none.
///
/// # Errors
///
/// If there is no value at all.
pub fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Traceparent>, D::Error> {
    let said = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(said.as_ref().and_then(serde_json::Value::as_str).and_then(Traceparent::parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What is sent on where `text` is received; empty for nothing.
    fn sent_on(text: &str) -> String {
        Traceparent::parse(text).map(|read| read.to_string()).unwrap_or_default()
    }

    #[test]
    fn one_of_our_version_is_sent_on_as_it_came_and_its_trace_has_the_id() {
        assert_eq!(sent_on(GIVEN), GIVEN);
        let read = Traceparent::parse(GIVEN).expect("one");
        assert_eq!(read.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    }

    #[test]
    fn what_is_not_exactly_one_is_none() {
        let long = format!("{GIVEN}-00");
        let twice = format!("{GIVEN},{GIVEN}");
        for text in [
            "",
            &GIVEN[..54],
            &long,
            &twice,
            &format!(" {GIVEN}"),
            &format!("{GIVEN} "),
            &GIVEN.to_uppercase(),
            &GIVEN.replacen("00-", "ff-", 1),
            &GIVEN.replacen("00-", "0-0", 1),
            &GIVEN.replace('-', "_"),
            &GIVEN.replace("0af7", "0ag7"),
            &GIVEN.replace("0af7", "0xf7"),
            &GIVEN.replace("0af7", "+af7"),
            &GIVEN.replace("0af7", "é7"),
            &GIVEN.replace("-01", "-0g"),
            &GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GIVEN.replace("b7ad6b7169203331", &"0".repeat(16)),
        ] {
            assert_eq!(sent_on(text), "", "{text}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known_and_sent_on_as_ours() {
        let later = GIVEN.replacen("00-", "cc-", 1);
        assert_eq!(sent_on(&later), GIVEN);
        assert_eq!(sent_on(&format!("{later}-what-the-future-will-be")), GIVEN);
        assert_eq!(sent_on(&format!("{later}.what")), "");
    }

    #[test]
    fn only_flags_that_mean_something_are_sent_on() {
        for (came, goes) in [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fc", "00")] {
            assert_eq!(sent_on(&GIVEN.replace("-01", &format!("-{came}"))), GIVEN.replace("-01", &format!("-{goes}")));
        }
    }

    #[test]
    fn one_of_our_own_can_be_read_whatever_the_dice_say() {
        for (trace, parent) in [(0, 0), (7, 9), (u128::MAX, u64::MAX)] {
            let made = Traceparent::random(trace, parent);
            assert_eq!(Traceparent::parse(&made.to_string()), Some(made));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_breaks_anything_and_what_is_sent_on_reads_the_same(text in "\\PC{0,70}|[0-9a-f-]{50,60}|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?") {
            if let Some(read) = Traceparent::parse(&text) {
                prop_assert_eq!(Traceparent::parse(&read.to_string()), Some(read));
                prop_assert_eq!(read.to_string().len(), LENGTH);
            }
        }
    }
}
