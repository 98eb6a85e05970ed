//! How many descriptors the worker may have open, and how many its builds take.
//!
//! A build must not be able to take another's. What it can make the worker open is bounded by `OF_A_BUILD`, since its
//! connections are carried by a process of its own; `run` refuses to begin with fewer than all slots can take.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The worker's own: its log, its lock, its runtime, connections to the board.
const OF_THE_WORKER: u64 = 64;
/// What the worker opens for one build at most: the log's spool, the heartbeats' thread and connection, lines to a guard and
/// to the proxy, output that is read, a removal.
const OF_A_BUILD: u64 = 32;

/// What the proxy of a build opens besides connections: its socket, its lines to the worker, names that it looks up.
const OF_A_PROXY: u64 = 160;
/// The most connections that a build may have at once.
const CONNECTIONS_MAX: u64 = 256;

/// How many connections a proxy may carry that may have so many descriptors: it takes two for each.
#[must_use]
pub fn connections(limit: u64) -> usize {
    let most = limit.saturating_sub(OF_A_PROXY) / 2;
    usize::try_from(most.clamp(1, CONNECTIONS_MAX)).unwrap_or(1)
}

/// Raises this process's limit as far as it may. Returns how many descriptors it may have.
#[must_use]
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return u64::MAX;
    };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// How many descriptors a worker with so many slots takes at most.
#[must_use]
pub fn needed(slots: u32) -> u64 {
    OF_THE_WORKER + u64::from(slots) * OF_A_BUILD
}

/// What is to be said if `limit` descriptors are too few for `slots`.
#[must_use]
pub fn too_few(slots: u32, limit: u64) -> Option<String> {
    let needed = needed(slots);
    (limit < needed).then(|| format!("{slots} slots take up to {needed} descriptors, and the limit is {limit}"))
}

/// How to mend it.
#[must_use]
pub fn fix(slots: u32) -> String {
    format!("`ulimit -Hn {0}` or LimitNOFILE={0} before it starts, or fewer --slots", needed(slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_carries_what_its_descriptors_are_for() {
        assert_eq!([connections(1024), connections(300), connections(64)], [256, 70, 1]);
    }

    #[test]
    fn a_limit_that_is_just_enough_is_enough() {
        assert_eq!(too_few(4, needed(4)), None);
        assert!(too_few(4, needed(4) - 1).unwrap().contains("192 descriptors, and the limit is 191"));
        assert!(needed(16) <= 1024, "the usual limit is enough for the usual worker");
    }
}
