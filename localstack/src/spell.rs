//! Times as a person says them.

use time::OffsetDateTime;

/// How long ago, in words.
#[must_use]
pub fn ago(at: OffsetDateTime, now: OffsetDateTime) -> String {
    match (now - at).whole_seconds().max(0) {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// This machine's clock, which decides nothing: only how long ago something was.
#[must_use]
pub fn now() -> OffsetDateTime {
    #[expect(clippy::disallowed_methods)]
    std::time::SystemTime::now().into()
}

/// A duration, in words; short ones to the nearest tenth of a second, as a worker has them in its log.
#[must_use]
pub fn took(ms: u64) -> String {
    let tenths = ms.saturating_add(50) / 100;
    match tenths / 10 {
        seconds @ 0..60 => format!("{seconds}.{} s", tenths % 10),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A duration as a clock that runs shows it: `1:05`.
#[must_use]
pub fn clock(seconds: u64) -> String {
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_read_well_at_their_edges() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(10);
        let before = |seconds| ago(now - time::Duration::seconds(seconds), now);
        assert_eq!(
            [before(-5), before(59), before(60), before(3599)],
            ["0 s ago", "59 s ago", "1 min ago", "59 min ago"]
        );
        assert_eq!([before(3600), before(172_799), before(172_800)], ["1 h ago", "47 h ago", "2 d ago"]);
        assert_eq!([took(49), took(50), took(1260), took(59_949)], ["0.0 s", "0.1 s", "1.3 s", "59.9 s"]);
        assert_eq!([took(59_950), took(60_000), took(3_661_000)], ["1 min 0 s", "1 min 0 s", "1 h 1 min"]);
        assert_eq!([clock(5), clock(65), clock(3600)], ["0:05", "1:05", "1:00:00"]);
    }
}
