//! Whether a build can be run at all: its repository's address and its ref, by git's own rules (SPEC.md, 1).

use crate::EndReason;

/// The number of these rules, stored with every build that passed them. A claim checks a build again that passed older
/// ones. Raise it with every change that refuses more.
pub const RULES_VERSION: i16 = 1;

/// What is wrong with a repository's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRepository {
    /// Not `https://`.
    NotHttps,
    /// A user name or a password stands before the host.
    Credentials,
    /// No host, a control character, a space, a query or a fragment, or longer than 2,048 bytes.
    Malformed,
}

/// Decides whether a clone may be tried from this address: https, no credentials, no query or fragment.
///
/// # Errors
///
/// What is wrong with it.
pub fn repository(address: &str) -> Result<(), BadRepository> {
    let plain = address.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>'));
    let rest = match address.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
        _ => return Err(BadRepository::NotHttps),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains('@') {
        return Err(BadRepository::Credentials);
    }
    let (host, port) = split_port(authority);
    let port_is_fine = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if !plain || address.len() > 2048 || host.is_empty() || !port_is_fine || rest.contains(['?', '#']) {
        return Err(BadRepository::Malformed);
    }
    if host_is_fine(host) && escapes_are_fine(rest) { Ok(()) } else { Err(BadRepository::Malformed) }
}

/// Whether every `%` begins an escape, and none stands for a control character, NUL among them.
fn escapes_are_fine(rest: &str) -> bool {
    rest.split('%').skip(1).all(|escape| {
        let byte = escape.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| !byte.is_ascii_control())
    })
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    if authority.starts_with('[') {
        let end = authority.find(']').map_or(authority.len(), |end| end + 1);
        let (host, rest) = authority.split_at(end);
        // What follows the bracket is a port or nothing; anything else is no number, so it is refused as one.
        return (host, (!rest.is_empty()).then(|| rest.strip_prefix(':').unwrap_or("?")));
    }
    match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

fn host_is_fine(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok());
    }
    !host.starts_with(['-', '.'])
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// Whether git accepts `name` as the name of a branch, a tag or a commit to fetch (`git check-ref-format
/// --allow-onelevel`), and no program takes it for an option.
#[must_use]
pub fn is_ref(name: &str) -> bool {
    let forbidden = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    let component_is_fine = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.is_empty()
        && name.len() <= 255
        && name != "@"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.bytes().any(forbidden)
        && name.split('/').all(component_is_fine)
}

/// Whether `name` is the name that git gives a commit: 40 hex digits, or 64 where it counts by SHA-256.
#[must_use]
pub fn is_commit(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Decides whether a pending build may be started; the reason it is to fail with, if not.
#[must_use]
pub fn unrunnable(has_pipeline: bool, address: &str, git_ref: &str) -> Option<EndReason> {
    if !has_pipeline {
        Some(EndReason::NoPipeline)
    } else if repository(address).is_err() {
        Some(EndReason::RepositoryNotHttps)
    } else if !is_ref(git_ref) {
        Some(EndReason::BadRef)
    } else {
        None
    }
}

/// Why a build was never started, for a person.
#[must_use]
pub fn explain(reason: EndReason) -> &'static str {
    match reason {
        EndReason::NoPipeline => "its pipeline was deleted before a worker took it",
        EndReason::RepositoryNotHttps => "its repository is not an https address without credentials",
        EndReason::BadRef => "its ref is not one that git accepts",
        EndReason::MinutesExhausted => "the workspace has used all build minutes of this month",
        EndReason::QueueExpired => "it waited longer for a worker than a build may",
        EndReason::User => "cancelled before a worker took it",
        EndReason::Superseded => "a newer build took its place before a worker took it",
        EndReason::StepFailed
        | EndReason::StepTimeout
        | EndReason::SilentTimeout
        | EndReason::CloneFailed
        | EndReason::ImageFailed
        | EndReason::NeverStarted
        | EndReason::OutOfMemory
        | EndReason::DiskFull
        | EndReason::LogLimit
        | EndReason::WorkerLost
        | EndReason::HostLost
        | EndReason::Overdue
        | EndReason::WorkerShutdown
        | EndReason::Recovery
        | EndReason::Internal
        | EndReason::Deadline => "ended before a worker took it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commits_are_named_by_forty_or_sixty_four_hex_digits() {
        for fine in ["0123456789abcdefABCD".repeat(2), "a".repeat(64)] {
            assert!(is_commit(&fine), "{fine}");
        }
        for bad in
            ["".into(), "a".repeat(39), "a".repeat(41), "a".repeat(63), "a".repeat(65), "g".repeat(40), "main".into()]
        {
            assert!(!is_commit(&bad), "{bad}");
        }
    }

    #[test]
    fn addresses_that_may_be_cloned_and_those_that_may_not() {
        for fine in [
            "https://git.example/a.git",
            "HTTPS://git.example:8443/a/b",
            "https://127.0.0.1:8443/repo.git",
            "https://[::1]:8443/repo.git",
            "https://git.example/a%20b.git",
        ] {
            assert_eq!(repository(fine), Ok(()), "{fine}");
        }
        for (bad, why) in [
            ("", BadRepository::NotHttps),
            ("http://git.example/a", BadRepository::NotHttps),
            ("git@git.example:a", BadRepository::NotHttps),
            ("ext::https://x", BadRepository::NotHttps),
            ("https://u:p@git.example/a", BadRepository::Credentials),
            ("https://u@git.example/a", BadRepository::Credentials),
            ("https://", BadRepository::Malformed),
            ("https:///a", BadRepository::Malformed),
            ("https://-x/a", BadRepository::Malformed),
            ("https://[::1", BadRepository::Malformed),
            ("https://[::1/a", BadRepository::Malformed),
            ("https://[::1]]]/a", BadRepository::Malformed),
            ("https://[::1]8443/a", BadRepository::Malformed),
            ("https://[::1]:/a", BadRepository::Malformed),
            ("https://[]/a", BadRepository::Malformed),
            ("https://git.example/a%00b", BadRepository::Malformed),
            ("https://git.example/a%0Ab", BadRepository::Malformed),
            ("https://git.example/a%", BadRepository::Malformed),
            ("https://git.example/a%zz", BadRepository::Malformed),
            ("https://git.example/a b", BadRepository::Malformed),
            ("https://git.example/a\n", BadRepository::Malformed),
            ("https://git.example/a?b", BadRepository::Malformed),
            ("https://git.example/a#b", BadRepository::Malformed),
            ("https://git.example:0/a", BadRepository::Malformed),
            ("https://git.example:99999/a", BadRepository::Malformed),
            ("https://git_example/a", BadRepository::Malformed),
            ("https://[::g]/a", BadRepository::Malformed),
        ] {
            assert_eq!(repository(bad), Err(why), "{bad:?}");
        }
        assert_eq!(repository(&format!("https://x/{}", "a".repeat(2048))), Err(BadRepository::Malformed));
    }

    #[test]
    fn refs_that_git_accepts_and_those_that_it_does_not() {
        for fine in
            ["main", "v1.2.3", "refs/heads/a-b", "feature/@x", "0123456789abcdef0123456789abcdef01234567", "a{b", "é"]
        {
            assert!(is_ref(fine), "{fine}");
        }
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a@{1}",
            "@",
            "a b",
            "a\u{7}",
            "a\u{7f}",
            "a\0",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
            "a.lock/b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
        ] {
            assert!(!is_ref(bad), "{bad:?}");
        }
        assert!(is_ref(&"a".repeat(255)) && !is_ref(&"a".repeat(256)));
    }

    #[test]
    fn the_first_thing_wrong_is_the_reason() {
        assert_eq!(unrunnable(true, "https://x/a", "main"), None);
        assert_eq!(unrunnable(false, "http://x", "-"), Some(EndReason::NoPipeline));
        assert_eq!(unrunnable(true, "http://x", "-"), Some(EndReason::RepositoryNotHttps));
        assert_eq!(unrunnable(true, "https://x/a", "-"), Some(EndReason::BadRef));
    }

    proptest! {
        #[test]
        fn a_ref_is_never_an_option_a_range_or_unprintable(name in "\\PC{0,40}|[-a-z./@{~^: \\x00-\\x1f]{0,12}") {
            if is_ref(&name) {
                let forbidden = ["..", "@{"].iter().any(|word| name.contains(word));
                prop_assert!(!name.starts_with('-') && !forbidden);
                prop_assert!(!name.bytes().any(|byte| byte.is_ascii_control() || byte == b' '));
            }
        }

        #[test]
        fn an_address_is_never_another_scheme_and_never_holds_credentials(address in "(https?|file|ssh|ext|HTTPS)?:?/{0,3}[-a-z0-9@:.%/?# \\[\\]]{0,30}") {
            if repository(&address).is_ok() {
                prop_assert!(address.to_lowercase().starts_with("https://"));
                let authority = address[8..].split('/').next().unwrap_or("");
                prop_assert!(!authority.contains('@') && !authority.is_empty());
                prop_assert_eq!(authority.contains('['), authority.contains(']'));
                prop_assert!(authority.matches(['[', ']']).count() <= 2);
            }
        }
    }
}
