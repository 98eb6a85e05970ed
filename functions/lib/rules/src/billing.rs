//! What a billing service says of a plan, when it is asked, and how long its answer counts (SPEC.md, Budget; docs/billing.md).

use crate::budget::{Plan, PreviewLimits};
use crate::{Seconds, Timestamp, Timing};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The minutes a month that a plan may have: what the columns hold, in seconds.
pub const MINUTES_PER_MONTH: RangeInclusive<u32> = 0..=35_000_000;
/// The longest that a plan may let one build run, in seconds: at most a day.
pub const BUILD_SECONDS_MAX: RangeInclusive<u32> = 1..=86_400;
/// How many builds a plan may let run or wait at once.
pub const BUILDS_MAX: RangeInclusive<u32> = 0..=100_000_000;
/// How many previews a plan may let live at once.
pub const PREVIEWS_MAX: RangeInclusive<u32> = 0..=1_000_000;
/// The longest that a plan may let a preview live, in seconds: at most a day, which may be put off again and again.
pub const PREVIEW_SECONDS_MAX: RangeInclusive<u32> = 1..=86_400;

/// How long nobody asks after a first failure, at most; it doubles with each further one.
pub const BACK_OFF_FIRST: Duration = Duration::from_secs(2);
/// How long nobody asks, however often it failed.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(60);

macro_rules! unreadable {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// Why an answer is none. Whatever the reason, the plan that is stored stays as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Unreadable {
            $($(#[$doc])* $variant,)+
        }

        impl Unreadable {
            /// All of them, in the order of the schema's CHECK.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in the database and in the logs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

unreadable! {
    /// No connection.
    Unreachable = "unreachable",
    /// No whole answer in time.
    Timeout = "timeout",
    /// The connection ended in the middle of the answer, or what came is not HTTP.
    Broken = "broken",
    /// Another status than 200; a redirect too.
    Status = "status",
    /// Not `application/json`.
    ContentType = "content_type",
    /// More bytes than an answer may have.
    TooLarge = "too_large",
    /// Not one JSON object.
    NotJson = "not_json",
    /// One of the four numbers about builds is not there.
    Missing = "missing",
    /// A number is not a whole one, or not one that a plan may have.
    Invalid = "invalid",
}

/// What stands in a field of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The field is not there.
    Nothing,
    /// A whole number, of whatever size.
    Whole(i128),
    /// Anything else: a fraction, a text, null.
    Other,
}

/// The fields of an answer that count; any others are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `minutes_per_month`.
    pub minutes_per_month: Given,
    /// `build_seconds_max`.
    pub build_seconds_max: Given,
    /// `running_max`.
    pub running_max: Given,
    /// `pending_max`.
    pub pending_max: Given,
    /// `previews_max`; may be missing.
    pub previews_max: Given,
    /// `preview_seconds_max`; may be missing.
    pub preview_seconds_max: Given,
}

/// Checks what comes before an answer's body: the status must be 200, the media type `application/json`, with parameters or
/// without.
///
/// # Errors
///
/// [`Unreadable::Status`], [`Unreadable::ContentType`].
pub fn check_head(status: u16, content_type: Option<&str>) -> Result<(), Unreadable> {
    if status != 200 {
        return Err(Unreadable::Status);
    }
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or("").trim();
    if media_type.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Unreadable::ContentType) }
}

/// Reads a plan. A number that no plan may have is refused, never brought into range.
///
/// # Errors
///
/// [`Unreadable::Missing`] before [`Unreadable::Invalid`].
pub fn read(answer: Answer) -> Result<Plan, Unreadable> {
    let Answer { minutes_per_month, build_seconds_max, running_max, pending_max, .. } = answer;
    if [minutes_per_month, build_seconds_max, running_max, pending_max].contains(&Given::Nothing) {
        return Err(Unreadable::Missing);
    }
    Ok(Plan {
        seconds_per_month: Seconds(within(minutes_per_month, &MINUTES_PER_MONTH)? * 60),
        build_seconds_max: Seconds(within(build_seconds_max, &BUILD_SECONDS_MAX)?),
        running_max: within(running_max, &BUILDS_MAX)?,
        pending_max: within(pending_max, &BUILDS_MAX)?,
        previews: previews(answer)?,
    })
}

/// A service that knows nothing of previews gives what plans have that say nothing of them.
fn previews(answer: Answer) -> Result<PreviewLimits, Unreadable> {
    let usual = PreviewLimits::default();
    let or = |given: Given, usual: u32| if given == Given::Nothing { Given::Whole(i128::from(usual)) } else { given };
    Ok(PreviewLimits {
        live_max: within(or(answer.previews_max, usual.live_max), &PREVIEWS_MAX)?,
        seconds_max: Seconds(within(or(answer.preview_seconds_max, usual.seconds_max.0), &PREVIEW_SECONDS_MAX)?),
    })
}

fn within(given: Given, range: &RangeInclusive<u32>) -> Result<u32, Unreadable> {
    match given {
        Given::Whole(number) => u32::try_from(number).ok().filter(|number| range.contains(number)),
        Given::Nothing | Given::Other => None,
    }
    .ok_or(Unreadable::Invalid)
}

/// What is stored about a workspace's plan and the asking for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Whether there is a plan.
    pub has_plan: bool,
    /// When it was asked for; `None`: it is that of the plan tables.
    pub fetched_at: Option<Timestamp>,
    /// How many attempts in a row have failed since.
    pub failures: u32,
    /// Nobody asks before this: the last attempt failed, or somebody asks for all.
    pub next_attempt_at: Option<Timestamp>,
}

/// Whether a plan that was asked for at `fetched_at` may still be relied on: up to `billing_stale` later, that included. The
/// plan tables' own (`None`) always may. The database's function `plan_is_fresh` repeats it; a test holds the two equal.
#[must_use]
pub fn is_fresh(fetched_at: Option<Timestamp>, timing: &Timing, now: Timestamp) -> bool {
    fetched_at.is_none_or(|fetched_at| now <= fetched_at.plus(timing.billing_stale))
}

/// Whether the billing service is to be asked for a plan now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// What is stored is young enough, it failed a moment ago, or somebody asks already.
    NotDue,
    /// It is, by every caller: there is nothing to go by, and as far as is known the service answers.
    Ask,
    /// It is, by one caller for all: what is stored holds meanwhile, or it failed before and this attempt finds out whether it
    /// answers again.
    AskForAll,
}

/// Decides whether to ask: there is no plan that can be relied on, or it is as old as `billing_refresh`. `next_attempt_at`
/// itself is no longer in the way.
#[must_use]
pub fn turn(stored: Stored, timing: &Timing, now: Timestamp) -> Turn {
    let holds = stored.has_plan && is_fresh(stored.fetched_at, timing, now);
    let is_young = stored.fetched_at.is_some_and(|fetched_at| now < fetched_at.plus(timing.billing_refresh));
    if holds && is_young {
        Turn::NotDue
    } else if !holds && stored.failures == 0 {
        Turn::Ask
    } else if stored.next_attempt_at.is_some_and(|next| now < next) {
        Turn::NotDue
    } else {
        Turn::AskForAll
    }
}

/// How long nobody asks after the `failures`th failure in a row: between half and the whole of a time that doubles from
/// [`BACK_OFF_FIRST`] to [`BACK_OFF_MAX`], as `dice` falls.
#[must_use]
pub fn back_off(failures: u32, dice: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let whole = BACK_OFF_FIRST.saturating_mul(1 << doublings).min(BACK_OFF_MAX);
    whole / 2 + (whole / 2).mul_f64(f64::from(dice) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: Answer = Answer {
        minutes_per_month: Given::Whole(100),
        build_seconds_max: Given::Whole(1800),
        running_max: Given::Whole(4),
        pending_max: Given::Whole(1000),
        previews_max: Given::Nothing,
        preview_seconds_max: Given::Nothing,
    };

    #[test]
    fn four_whole_numbers_are_a_plan() {
        let plan = Plan {
            seconds_per_month: Seconds(6000),
            build_seconds_max: Seconds(1800),
            running_max: 4,
            pending_max: 1000,
            previews: PreviewLimits::default(),
        };
        assert_eq!(read(ANSWER), Ok(plan));
    }

    #[test]
    fn a_number_outside_what_a_plan_may_have_is_refused_and_the_ones_at_the_edges_are_not() {
        let minutes = |number| read(Answer { minutes_per_month: Given::Whole(number), ..ANSWER }).is_ok();
        let longest = |number| read(Answer { build_seconds_max: Given::Whole(number), ..ANSWER }).is_ok();
        let running = |number| read(Answer { running_max: Given::Whole(number), ..ANSWER }).is_ok();
        let pending = |number| read(Answer { pending_max: Given::Whole(number), ..ANSWER }).is_ok();
        let edges = |takes: &dyn Fn(i128) -> bool, low: i128, high: i128| {
            assert_eq!([low - 1, low, high, high + 1].map(takes), [false, true, true, false]);
            assert_eq!([i128::MIN, i128::from(u32::MAX) + 1 + low, i128::MAX].map(takes), [false; 3]);
        };
        edges(&minutes, 0, 35_000_000);
        edges(&longest, 1, 86_400);
        edges(&running, 0, 100_000_000);
        edges(&pending, 0, 100_000_000);
        let previews = |number| read(Answer { previews_max: Given::Whole(number), ..ANSWER }).is_ok();
        let live = |number| read(Answer { preview_seconds_max: Given::Whole(number), ..ANSWER }).is_ok();
        edges(&previews, 0, 1_000_000);
        edges(&live, 1, 86_400);
    }

    #[test]
    fn the_greatest_plan_fits_its_columns() {
        let plan = read(Answer { minutes_per_month: Given::Whole(35_000_000), ..ANSWER }).unwrap();
        assert!(i32::try_from(plan.seconds_per_month.0).is_ok());
    }

    #[test]
    fn a_field_that_is_not_there_is_missing_and_one_that_is_no_whole_number_is_invalid() {
        let with = |given| {
            [
                Answer { minutes_per_month: given, ..ANSWER },
                Answer { build_seconds_max: given, ..ANSWER },
                Answer { running_max: given, ..ANSWER },
                Answer { pending_max: given, ..ANSWER },
            ]
            .map(read)
        };
        assert_eq!(with(Given::Nothing), [Err(Unreadable::Missing); 4]);
        assert_eq!(with(Given::Other), [Err(Unreadable::Invalid); 4]);
    }

    #[test]
    fn only_200_with_json_is_looked_at() {
        for status in [0, 100, 199, 201, 204, 301, 302, 304, 401, 404, 500, 503] {
            assert_eq!(check_head(status, Some("application/json")), Err(Unreadable::Status), "{status}");
        }
        for kind in [None, Some(""), Some("text/html"), Some("text/json"), Some("application/jsonp"), Some("json")] {
            assert_eq!(check_head(200, kind), Err(Unreadable::ContentType), "{kind:?}");
        }
        for kind in ["application/json", "Application/JSON", "application/json; charset=utf-8", " application/json ;"] {
            assert_eq!(check_head(200, Some(kind)), Ok(()), "{kind}");
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    #[test]
    fn a_plan_is_fresh_for_fifteen_minutes_and_one_of_the_tables_for_ever() {
        let fresh = |now| is_fresh(Some(at(0)), &Timing::default(), Timestamp(now));
        assert_eq!((fresh(900_000), fresh(900_001)), (true, false));
        assert!(is_fresh(None, &Timing::default(), Timestamp(i64::MAX)));
    }

    #[test]
    fn a_plan_is_asked_for_again_after_a_minute_by_one_for_all() {
        let turn_at = |stored, seconds| turn(stored, &Timing::default(), at(seconds));
        let stored = Stored { has_plan: true, fetched_at: Some(at(0)), ..Stored::default() };
        assert_eq!((turn_at(stored, 59), turn_at(stored, 60)), (Turn::NotDue, Turn::AskForAll));
        assert_eq!(turn_at(Stored { fetched_at: None, ..stored }, 0), Turn::AskForAll, "the plan tables' own");
        let asked = Stored { next_attempt_at: Some(at(64)), ..stored };
        assert_eq!((turn_at(asked, 63), turn_at(asked, 64)), (Turn::NotDue, Turn::AskForAll));
    }

    #[test]
    fn without_a_plan_to_go_by_everybody_asks() {
        let turn_at = |stored, seconds| turn(stored, &Timing::default(), at(seconds));
        let stale = Stored { has_plan: true, fetched_at: Some(at(0)), next_attempt_at: Some(at(999)), failures: 0 };
        assert_eq!((turn_at(stale, 900), turn_at(stale, 901)), (Turn::NotDue, Turn::Ask));
        assert_eq!(turn_at(Stored { has_plan: false, ..stale }, 0), Turn::Ask);
        assert_eq!(turn_at(Stored::default(), 0), Turn::Ask);
    }

    #[test]
    fn after_a_failure_nobody_asks_until_its_time_and_then_one_for_all() {
        let stored = Stored { failures: 1, next_attempt_at: Some(at(70)), ..Stored::default() };
        let turn_at = |seconds| turn(stored, &Timing::default(), at(seconds));
        assert_eq!((turn_at(69), turn_at(70)), (Turn::NotDue, Turn::AskForAll));
        let fresh = Stored { has_plan: true, fetched_at: Some(at(70)), ..stored };
        assert_eq!(turn(fresh, &Timing::default(), at(70)), Turn::NotDue);
    }

    #[test]
    fn a_back_off_doubles_from_two_seconds_to_a_minute() {
        let whole = [1, 2, 3, 4, 5, 6, 7, 1000, u32::MAX].map(|failures| back_off(failures, u32::MAX).as_secs());
        assert_eq!(whole, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!(back_off(1, 0), Duration::from_secs(1));
        assert_eq!(back_off(9, 0), Duration::from_secs(30));
    }

    fn given() -> impl Strategy<Value = Given> {
        prop_oneof![
            Just(Given::Nothing),
            Just(Given::Other),
            any::<i128>().prop_map(Given::Whole),
            (-5_i128..200_000_000).prop_map(Given::Whole),
        ]
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_said_to_the_letter_or_nothing(
            minutes_per_month in given(), build_seconds_max in given(), running_max in given(), pending_max in given(),
        ) {
            let answer = Answer { minutes_per_month, build_seconds_max, running_max, pending_max, ..ANSWER };
            if let Ok(plan) = read(answer) {
                prop_assert_eq!(Given::Whole(i128::from(plan.seconds_per_month.0 / 60)), minutes_per_month);
                prop_assert_eq!(Given::Whole(i128::from(plan.build_seconds_max.0)), build_seconds_max);
                prop_assert_eq!(Given::Whole(i128::from(plan.running_max)), running_max);
                prop_assert_eq!(Given::Whole(i128::from(plan.pending_max)), pending_max);
                prop_assert!(plan.build_seconds_max > Seconds::ZERO);
            }
        }

        #[test]
        fn a_back_off_is_between_half_and_the_whole_and_never_longer_than_a_minute(failures in 1_u32.., dice in any::<u32>()) {
            let (least, most) = (back_off(failures, 0), back_off(failures, u32::MAX));
            let drawn = back_off(failures, dice);
            prop_assert!(least <= drawn && drawn <= most && most <= BACK_OFF_MAX && most == least * 2);
        }

        #[test]
        fn what_is_due_by_its_age_is_asked_for_before_it_is_stale(
            refresh in 1_u64..1200, age in 0_u64..2000,
        ) {
            let timing = Timing { billing_refresh: Duration::from_secs(refresh), ..Timing::default() };
            let stored = Stored { has_plan: true, fetched_at: Some(at(0)), ..Stored::default() };
            let now = Timestamp(0).plus(Duration::from_secs(age));
            let asks = turn(stored, &timing, now) != Turn::NotDue;
            prop_assert_eq!(asks, age >= refresh.min(901));
            prop_assert!(asks || is_fresh(stored.fetched_at, &timing, now));
        }
    }
}
