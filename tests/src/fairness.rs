//! A board in miniature, on the rule alone: builds arrive by seeded dice, slots free up, `rules::fairness::next` says whose turn it
//! is. Shows what the two orders do to waits (docs/fairness.md).

use rules::fairness::{Contender, Order, next};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;

/// Builds that run at once.
pub const SLOTS: u32 = 20;
/// Tenants that submit a build now and then.
pub const SMALL: usize = 9;
/// What one tenant has submitted before the others begin.
pub const BACKLOG: usize = 100_000;
/// How long arrivals are looked at, in milliseconds: two days.
const SPAN_MS: u64 = 48 * 3600 * 1000;
/// The longest build, in milliseconds.
pub const BUILD_MS_MAX: u64 = 10 * 60 * 1000;
/// The mean pause between two builds of a small tenant, in milliseconds.
const PAUSE_MS: u64 = 15 * 60 * 1000;

/// Dice that fall alike on every machine and in every release (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 1 to `max`, each as likely.
    fn up_to(&mut self, max: u64) -> u64 {
        1 + self.roll() % max
    }
}

struct Waiting {
    number: i64,
    arrived_ms: u64,
    takes_ms: u64,
}

#[derive(Default)]
struct Tenant {
    queue: VecDeque<Waiting>,
    running: u32,
    waits_ms: Vec<u64>,
}

/// What happened to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How many of its builds started.
    pub started: usize,
    /// How long they had waited, in milliseconds, rising.
    pub waits_ms: Vec<u64>,
}

impl Outcome {
    /// The wait that `percent` of its builds did not exceed, in milliseconds; 0 if none started.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> u64 {
        let last = self.waits_ms.len().saturating_sub(1);
        self.waits_ms.get(last * percent / 100).copied().unwrap_or(0)
    }
}

/// Two days under `order`: first the tenant with the backlog, then the small ones.
#[must_use]
pub fn simulate(order: Order) -> Vec<Outcome> {
    let mut dice = Dice(42);
    let mut tenants: Vec<Tenant> = (0..=SMALL).map(|_| Tenant::default()).collect();
    let mut arrivals = arrivals(&mut dice);
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    loop {
        let arrival = arrivals.front().map(|(_, waiting)| waiting.arrived_ms);
        let end = ends.peek().map(|Reverse((at, _))| *at);
        let now = match (arrival, end) {
            (Some(arrival), Some(end)) => arrival.min(end),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => break,
        };
        if now > SPAN_MS {
            break;
        }
        while ends.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, tenant))) = ends.pop() {
                tenants[tenant].running -= 1;
            }
        }
        while arrivals.front().is_some_and(|(_, waiting)| waiting.arrived_ms <= now) {
            if let Some((tenant, waiting)) = arrivals.pop_front() {
                tenants[tenant].queue.push_back(waiting);
            }
        }
        start(order, &mut tenants, &mut ends, now);
    }
    tenants.into_iter().map(outcome).collect()
}

/// Every build, by when it arrives; its number is its place.
fn arrivals(dice: &mut Dice) -> VecDeque<(usize, Waiting)> {
    let mut all: Vec<(u64, usize, u64)> = (0..BACKLOG).map(|_| (0, 0, dice.up_to(BUILD_MS_MAX))).collect();
    for tenant in 1..=SMALL {
        let mut at = 0;
        while at < SPAN_MS {
            at += dice.up_to(2 * PAUSE_MS);
            all.push((at, tenant, dice.up_to(BUILD_MS_MAX)));
        }
    }
    all.sort_by_key(|(at, tenant, _)| (*at, *tenant));
    let numbered = all.into_iter().zip(1..);
    numbered
        .map(|((arrived_ms, tenant, takes_ms), number)| (tenant, Waiting { number, arrived_ms, takes_ms }))
        .collect()
}

/// Fills the free slots.
fn start(order: Order, tenants: &mut [Tenant], ends: &mut BinaryHeap<Reverse<(u64, usize)>>, now: u64) {
    while tenants.iter().map(|tenant| tenant.running).sum::<u32>() < SLOTS {
        let (places, contenders): (Vec<usize>, Vec<Contender>) = tenants
            .iter()
            .enumerate()
            .filter_map(|(place, tenant)| {
                let head = tenant.queue.front()?.number;
                Some((place, Contender { running: tenant.running, head }))
            })
            .unzip();
        let Some(chosen) = next(order, &contenders).map(|place| places[place]) else { return };
        let Some(build) = tenants[chosen].queue.pop_front() else { return };
        tenants[chosen].running += 1;
        tenants[chosen].waits_ms.push(now - build.arrived_ms);
        ends.push(Reverse((now + build.takes_ms, chosen)));
    }
}

fn outcome(mut tenant: Tenant) -> Outcome {
    tenant.waits_ms.sort_unstable();
    Outcome { started: tenant.waits_ms.len(), waits_ms: tenant.waits_ms }
}

/// The table of docs/fairness.md.
#[must_use]
pub fn table() -> String {
    let mut table = String::from(
        "| tenant | order | started | median wait | 99 % | longest |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let (oldest, fair) = (simulate(Order::Oldest), simulate(Order::Fair));
    for (place, both) in oldest.iter().zip(&fair).enumerate() {
        let name = if place == 0 { "backlog".to_owned() } else { format!("small {place}") };
        for (order, outcome) in [(Order::Oldest, both.0), (Order::Fair, both.1)] {
            let waits = [50, 99, 100].map(|percent| spelled(outcome.percentile(percent), outcome.started));
            let _ = writeln!(
                table,
                "| {name} | `{}` | {} | {} | {} | {} |",
                order.as_str(),
                outcome.started,
                waits[0],
                waits[1],
                waits[2]
            );
        }
    }
    table
}

fn spelled(ms: u64, started: usize) -> String {
    match ms / 1000 {
        _ if started == 0 => "–".into(),
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{:.1} h", f64::from(u32::try_from(seconds / 360).unwrap_or(u32::MAX)) / 10.0),
    }
}
