//! What a back end gives a host that runs strangers' programs: one list for all of them, so that they can be compared.

use futures::future::BoxFuture;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Something that a step can't do, whatever it tries (SPEC.md, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// See, signal or reach processes, files and networks but its own: no step runs without.
    Namespaces,
    /// Have a capability, in its own namespaces either.
    Capabilities,
    /// Gain privileges by running a program.
    Privileges,
    /// Be root, or another build's user, outside.
    Users,
    /// Make namespaces of its own.
    Nesting,
    /// Make the kernel's rarer calls.
    Seccomp,
    /// Reach what neither is public nor allowed by the operator.
    Network,
    /// Take more memory than its limit.
    Memory,
    /// Have more processes and threads than its limit.
    Processes,
    /// Take more CPU than its limit.
    Cpu,
    /// Fill more disk than its limit.
    Disk,
}

/// All guarantees, in the order of the table.
pub const ALL: [Guarantee; 11] = [
    Guarantee::Namespaces,
    Guarantee::Capabilities,
    Guarantee::Privileges,
    Guarantee::Users,
    Guarantee::Nesting,
    Guarantee::Seccomp,
    Guarantee::Network,
    Guarantee::Memory,
    Guarantee::Processes,
    Guarantee::Cpu,
    Guarantee::Disk,
];

impl Guarantee {
    /// Its name, by which an operator accepts that it is missing.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Capabilities => "capabilities",
            Self::Privileges => "privileges",
            Self::Users => "users",
            Self::Nesting => "nesting",
            Self::Seccomp => "seccomp",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Guarantee {
    type Err = String;

    /// What an operator may accept to be without: all but namespaces, since a step is never run without a sandbox.
    fn from_str(word: &str) -> Result<Self, String> {
        let may_miss = |guarantee: &&Self| **guarantee != Self::Namespaces;
        let known = ALL.iter().filter(may_miss).find(|guarantee| guarantee.as_str() == word);
        known.copied().ok_or_else(|| {
            let words: Vec<&str> = ALL.iter().filter(may_miss).map(|guarantee| guarantee.as_str()).collect();
            format!("must be one of {}", words.join(", "))
        })
    }
}

/// What a back end gives of one guarantee on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Which.
    pub guarantee: Guarantee,
    /// Whether it holds.
    pub held: bool,
    /// What holds it; or what was seen instead.
    pub found: String,
    /// What to do, if it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Given {
    /// One that holds, by what `found` says.
    #[must_use]
    pub fn held(guarantee: Guarantee, found: impl Into<String>) -> Self {
        Self { guarantee, held: true, found: found.into(), fix: None }
    }

    /// One that does not hold.
    #[must_use]
    pub fn missing(guarantee: Guarantee, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { guarantee, held: false, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Nothing is held that was not tried.
#[must_use]
pub(super) fn untried(why: &str, fix: &str) -> Vec<Given> {
    ALL.iter().map(|guarantee| Given::missing(*guarantee, format!("not tried: {why}"), fix)).collect()
}

/// One back end's column of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// The back end's name.
    pub isolation: String,
    /// What it gives, each guarantee at most once.
    pub given: Vec<Given>,
}

/// What is tried of a back end; the futures of several may be awaited together.
pub type Trying<'a> = BoxFuture<'a, Vec<Given>>;

/// What of `given` is missing, and not in what the operator accepts.
#[must_use]
pub fn refused<'a>(given: &'a [Given], accepted: &BTreeSet<Guarantee>) -> Vec<&'a Given> {
    given.iter().filter(|given| !given.held && !accepted.contains(&given.guarantee)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_guarantee_is_refused_unless_it_is_accepted_by_name() {
        let given = [
            Given::held(Guarantee::Seccomp, "a filter"),
            Given::missing(Guarantee::Memory, "no cgroups", "start it with systemd"),
            Given::missing(Guarantee::Cpu, "no cgroups", "start it with systemd"),
        ];
        let accept = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect();
        assert_eq!(refused(&given, &accept(&["memory"])), [&given[2]]);
        assert!(refused(&given, &accept(&["cpu", "memory"])).is_empty());
        assert_eq!(refused(&given, &accept(&[])).len(), 2);
    }

    #[test]
    fn every_guarantee_has_a_name_of_its_own_and_a_sandbox_can_not_be_waived() {
        let names: BTreeSet<_> = ALL.iter().map(|guarantee| guarantee.as_str()).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(Guarantee::from_str("disk"), Ok(Guarantee::Disk));
        for word in ["namespaces", "all", ""] {
            assert!(Guarantee::from_str(word).unwrap_err().contains("seccomp"), "{word}");
        }
    }
}
