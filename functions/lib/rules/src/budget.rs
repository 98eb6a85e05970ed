//! What a workspace may still spend, what a build reserves of it, and what it is charged (SPEC.md, Budget).

use crate::Seconds;

/// What a workspace's plan allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Build time a calendar month (UTC).
    pub seconds_per_month: Seconds,
    /// The longest that one build may run.
    pub build_seconds_max: Seconds,
    /// How many builds may run at once.
    pub running_max: u32,
    /// How many builds may wait at once.
    pub pending_max: u32,
    /// What it allows of live previews.
    pub previews: PreviewLimits,
}

/// What a plan allows of live previews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewLimits {
    /// How many may live at once: those that start or run.
    pub live_max: u32,
    /// The longest that one may live from any moment on.
    pub seconds_max: Seconds,
}

impl Default for PreviewLimits {
    /// 4 at once, each a day: what plans have that say nothing of previews.
    fn default() -> Self {
        Self { live_max: 4, seconds_max: Seconds(86_400) }
    }
}

/// What is used of it: the numbers on the workspace's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Charged in this month.
    pub charged: Seconds,
    /// Reserved by running builds.
    pub reserved: Seconds,
    /// Running builds.
    pub running: u32,
    /// Waiting builds.
    pub pending: u32,
}

/// Whether a build may start, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It may, and reserves this much: its `max_duration_seconds`.
    Run(Seconds),
    /// As many builds run as the plan allows.
    RunningLimit,
    /// What running builds have reserved stands in the way; it waits.
    Wait,
    /// The month is spent.
    Exhausted,
}

/// Whether a build may enter the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Admit,
    /// The month is spent: 402 `minutes_exhausted`.
    MinutesExhausted,
    /// As many builds wait as the plan allows: 429 `queue_full`.
    QueueFull,
    /// The plan can't be read: 503 `billing_unavailable`.
    BillingUnavailable,
}

/// What is left of the month before reservations.
#[must_use]
pub fn left(plan: Plan, charged: Seconds) -> Seconds {
    plan.seconds_per_month.saturating_sub(charged)
}

/// Decides whether a build that asks for `timeout` may start on what is left of its workspace's plan, and for how long.
///
/// `Run` carries the deadline to reserve: the shortest of `timeout`, the plan's longest build and what is left, which
/// running builds' reservations never shorten. The database's function `claim_build` repeats it under the workspace's
/// lock; a test holds the two equal. (SPEC.md, Budget)
#[must_use]
pub fn reserve(plan: Plan, usage: Usage, timeout: Seconds) -> Grant {
    let left = left(plan, usage.charged);
    let wanted = left.min(timeout).min(plan.build_seconds_max);
    match left.saturating_sub(usage.reserved) {
        _ if left == Seconds::ZERO => Grant::Exhausted,
        _ if usage.running >= plan.running_max => Grant::RunningLimit,
        free if free < wanted => Grant::Wait,
        _ => Grant::Run(wanted),
    }
}

/// Decides whether a build may enter the queue. `None` is a plan that can't be read.
#[must_use]
pub fn admit(plan: Option<Plan>, usage: Usage) -> Admission {
    match plan {
        None => Admission::BillingUnavailable,
        Some(plan) if left(plan, usage.charged) == Seconds::ZERO => Admission::MinutesExhausted,
        Some(plan) if usage.pending >= plan.pending_max => Admission::QueueFull,
        Some(_) => Admission::Admit,
    }
}

/// What a completed build is charged: its run time as the worker says, at most what the database saw and at most what
/// was reserved, rounded up to a second.
#[must_use]
pub fn charge(ran_ms: u64, seen_ms: u64, reserved: Seconds) -> Seconds {
    Seconds::ceil_from_ms(ran_ms.min(seen_ms)).min(reserved)
}

/// What a lost build is charged: up to the last expiry of its lease.
#[must_use]
pub fn charge_lost(claimed_to_lease_end_ms: u64, reserved: Seconds) -> Seconds {
    Seconds::ceil_from_ms(claimed_to_lease_end_ms).min(reserved)
}

/// What an overdue build is charged: up to its deadline, which is what it reserved.
#[must_use]
pub fn charge_overdue(reserved: Seconds) -> Seconds {
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAN: Plan = Plan {
        seconds_per_month: Seconds(6000),
        build_seconds_max: Seconds(1800),
        running_max: 2,
        pending_max: 3,
        previews: PreviewLimits { live_max: 4, seconds_max: Seconds(86_400) },
    };

    fn used(charged: u32, reserved: u32, running: u32) -> Usage {
        Usage { charged: Seconds(charged), reserved: Seconds(reserved), running, pending: 0 }
    }

    #[test]
    fn a_deadline_is_the_shortest_of_what_is_left_the_plans_and_the_builds_own() {
        assert_eq!(reserve(PLAN, used(0, 0, 0), Seconds(3600)), Grant::Run(Seconds(1800)));
        assert_eq!(reserve(PLAN, used(0, 0, 0), Seconds(90)), Grant::Run(Seconds(90)));
        assert_eq!(reserve(PLAN, used(5000, 0, 0), Seconds(3600)), Grant::Run(Seconds(1000)));
    }

    #[test]
    fn reservations_make_a_build_wait_and_never_shorten_it() {
        assert_eq!(reserve(PLAN, used(0, 4200, 1), Seconds(1800)), Grant::Run(Seconds(1800)));
        assert_eq!(reserve(PLAN, used(0, 4201, 1), Seconds(1800)), Grant::Wait);
    }

    #[test]
    fn a_spent_month_is_exhausted_and_the_last_second_is_not() {
        assert_eq!(reserve(PLAN, used(6000, 0, 0), Seconds(10)), Grant::Exhausted);
        assert_eq!(reserve(PLAN, used(5999, 0, 0), Seconds(10)), Grant::Run(Seconds(1)));
    }

    #[test]
    fn the_running_limit_counts_this_build() {
        assert_eq!(reserve(PLAN, used(0, 10, 1), Seconds(10)), Grant::Run(Seconds(10)));
        assert_eq!(reserve(PLAN, used(0, 20, 2), Seconds(10)), Grant::RunningLimit);
    }

    #[test]
    fn admission_asks_for_a_plan_then_minutes_then_room() {
        let pending = |pending| Usage { pending, ..used(0, 0, 0) };
        assert_eq!(admit(None, pending(0)), Admission::BillingUnavailable);
        assert_eq!(admit(Some(PLAN), Usage { pending: 9, ..used(6000, 0, 0) }), Admission::MinutesExhausted);
        assert_eq!(admit(Some(PLAN), pending(2)), Admission::Admit);
        assert_eq!(admit(Some(PLAN), pending(3)), Admission::QueueFull);
    }

    proptest! {
        #[test]
        fn a_workspace_never_spends_more_than_its_plan(
            month in 1_u32..20_000, max in 1_u32..4000, asks in prop::collection::vec((1_u32..4000, 0_u64..5_000_000, any::<bool>()), 1..60),
        ) {
            let plan = Plan { seconds_per_month: Seconds(month), build_seconds_max: Seconds(max), running_max: 5, pending_max: 0, previews: PreviewLimits::default() };
            let mut usage = Usage::default();
            let mut held: Vec<Seconds> = Vec::new();
            for (timeout, ran_ms, ends) in asks {
                if let Grant::Run(seconds) = reserve(plan, usage, Seconds(timeout)) {
                    prop_assert!(seconds > Seconds::ZERO && seconds <= Seconds(timeout) && seconds <= Seconds(max));
                    usage.reserved = usage.reserved.saturating_add(seconds);
                    usage.running += 1;
                    held.push(seconds);
                }
                if ends && let Some(reserved) = held.pop() {
                    usage.reserved = usage.reserved.saturating_sub(reserved);
                    usage.running -= 1;
                    usage.charged = usage.charged.saturating_add(charge(ran_ms, u64::MAX, reserved));
                }
                prop_assert!(usage.charged.0 + usage.reserved.0 <= month);
            }
        }

        #[test]
        fn a_charge_is_never_more_than_was_seen_or_reserved(ran in 0_u64..10_000_000, seen in 0_u64..10_000_000, reserved in 0_u32..5000) {
            let charged = charge(ran, seen, Seconds(reserved));
            prop_assert!(charged <= Seconds(reserved));
            prop_assert!(charged.as_ms() < ran.min(seen) + 1000);
        }
    }
}
