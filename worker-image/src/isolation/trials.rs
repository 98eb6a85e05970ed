//! Tries a back end's guarantees for real, in three sandboxes at once: a start waits for them, so what does not disturb each other shares
//! one. Computing takes a sandbox that is slow, and filling the disk ends one.

use super::attempt::Attempt;
use super::bubblewrap::names;
use super::guarantees::{ALL, Given, Guarantee};
use super::trial::{THREADS, Trial, Walls};
use super::{Exceeded, Isolation, Limits};
use crate::site::Site;
use std::os::unix::fs::MetadataExt as _;

/// What the trials may take: far less than they want.
const LIMITS: Limits = Limits { memory_bytes: 64 << 20, processes: 48, cpu_millis: 250, disk_bytes: 4 << 20 };
/// What a trial may take that is not about limits.
pub(super) const AMPLE: Limits =
    Limits { memory_bytes: 1 << 30, processes: 512, cpu_millis: 4000, disk_bytes: 1 << 30 };

/// What came of a trial; nothing if it was not made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    said: String,
    /// The last line that it wrote to its standard error.
    complaint: String,
    code: Option<i32>,
    exceeded: Option<Exceeded>,
}

/// What came of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    walls: Walls,
    /// Whose processes a step's are outside.
    owner: Option<u32>,
    memory: Outcome,
    processes: Outcome,
    cpu: Outcome,
    disk: Outcome,
}

/// How a back end holds a guarantee, and how to mend it where it does not.
pub(super) struct Means {
    /// Nothing, and it is missing whatever the trial came to: a busy host looks like a limited one.
    pub(super) by: Option<String>,
    pub(super) fix: String,
}

impl Facts {
    /// The same, where this host does not see whose files a step's are, but knows whom it runs as.
    pub(super) fn owned_by(self, owner: u32) -> Self {
        Self { owner: Some(owner), ..self }
    }
}

/// Tries everything in `site`, which is of slot 0; the disk only where something may hold it, since that takes long.
///
/// # Errors
///
/// Why no sandbox came up.
pub(super) async fn facts(isolation: &dyn Isolation, site: &Site, holds_disk: bool) -> Result<Facts, String> {
    let run = |trial, limits| run(isolation, site, trial, limits);
    let disk = async {
        if !holds_disk {
            return Ok(Outcome::default());
        }
        // The others share its directory, but may hold far more.
        run(Trial::Disk, Limits { disk_bytes: LIMITS.disk_bytes, ..AMPLE }).await
    };
    let (walls, cpu, disk) = tokio::join!(
        run(Trial::Walls, Limits { memory_bytes: LIMITS.memory_bytes, processes: LIMITS.processes, ..AMPLE }),
        run(Trial::Cpu, Limits { cpu_millis: LIMITS.cpu_millis, ..AMPLE }),
        disk,
    );
    let Told { walls, processes, memory } = told(walls?)?;
    let owner = std::fs::metadata(site.path(names::WORKSPACE).join("trial")).map(|meta| meta.uid()).ok();
    Ok(Facts { walls, owner, memory, processes, cpu: cpu?, disk: disk? })
}

/// What one sandbox told of several trials.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    walls: Walls,
    processes: Outcome,
    memory: Outcome,
}

/// What [`Trial::Walls`] came to: a line for each thing that it tried. Who told of the threads had an end of its own only afterwards.
///
/// # Errors
///
/// If it did not even tell of the walls.
fn told(outcome: Outcome) -> Result<Told, String> {
    let mut lines = outcome.said.lines();
    let walls = lines.next().and_then(|line| serde_json::from_str(line).ok());
    let walls = walls.ok_or_else(|| format!("the trial said {:?}", outcome.said))?;
    let processes = match lines.next() {
        Some(threads) => Outcome { said: threads.into(), code: Some(0), ..Outcome::default() },
        None => Outcome { said: String::new(), ..outcome.clone() },
    };
    let said = lines.next().unwrap_or_default().to_owned();
    Ok(Told { walls, processes, memory: Outcome { said, ..outcome } })
}

async fn run(isolation: &dyn Isolation, site: &Site, trial: Trial, limits: Limits) -> Result<Outcome, String> {
    let program = isolation.own(&["try", trial.as_str()]);
    let outcome = Attempt { isolation, site, program, way_out: None, limits }.run().await?;
    let complaint = outcome.complaint.lines().last().unwrap_or_default().trim().to_owned();
    Ok(Outcome { said: outcome.said, complaint, code: Some(outcome.code), exceeded: outcome.exceeded })
}

/// What the facts come to; `means` says what holds a guarantee, or how to mend it.
pub(super) fn judge(facts: &Facts, means: impl Fn(Guarantee) -> Means) -> Vec<Given> {
    ALL.iter()
        .map(|guarantee| {
            let Means { by, fix } = means(*guarantee);
            match (is_held(facts, *guarantee), by) {
                (Ok(()), Some(by)) => Given::held(*guarantee, by),
                (Ok(()), None) => Given::missing(*guarantee, "nothing limits it here", fix),
                (Err(seen), _) => Given::missing(*guarantee, seen, fix),
            }
        })
        .collect()
}

/// Whether it holds; if not, what was seen.
fn is_held(facts: &Facts, guarantee: Guarantee) -> Result<(), String> {
    let walls = &facts.walls;
    let number = |outcome: &Outcome| outcome.said.parse().unwrap_or(u32::MAX);
    let (is_held, seen) = match guarantee {
        Guarantee::Namespaces => (
            walls.processes <= 3 && walls.writable.is_empty(),
            format!("a step sees {} processes, and can write {:?}", walls.processes, walls.writable),
        ),
        Guarantee::Capabilities => (walls.capabilities == 0, format!("a step has {:#x}", walls.capabilities)),
        Guarantee::Privileges => (walls.no_new_privileges, "a step may gain privileges".into()),
        Guarantee::Users => (facts.owner.is_some_and(|owner| owner != 0), "a step is root outside".into()),
        Guarantee::Nesting => (walls.no_namespace, "a step can make user namespaces".into()),
        Guarantee::Seccomp => (walls.seccomp == 2 && walls.no_mount, format!("mode {}", walls.seccomp)),
        Guarantee::Network => {
            (walls.interfaces.is_empty() && walls.unreachable, format!("interfaces {:?}", walls.interfaces))
        }
        Guarantee::Memory => (facts.memory.exceeded == Some(Exceeded::Memory), taken(&facts.memory, "MiB", "64")),
        Guarantee::Processes => (
            facts.processes.code == Some(0) && number(&facts.processes) < THREADS,
            taken(&facts.processes, "threads", "48"),
        ),
        Guarantee::Cpu => (
            facts.cpu.code == Some(0) && number(&facts.cpu) <= LIMITS.cpu_millis * 2,
            taken(&facts.cpu, "thousandths of a CPU", "250"),
        ),
        Guarantee::Disk => (facts.disk.exceeded == Some(Exceeded::Disk), taken(&facts.disk, "MiB", "4")),
    };
    if is_held { Ok(()) } else { Err(seen) }
}

fn taken(outcome: &Outcome, unit: &str, limit: &str) -> String {
    match outcome.code {
        Some(0) => format!("a step took {} {unit} where {limit} were its limit", outcome.said),
        Some(code) if outcome.complaint.is_empty() => {
            format!("a step that took more than {limit} {unit} ended with exit code {code}")
        }
        Some(_) => format!("a step that takes more than {limit} {unit} failed: {}", outcome.complaint),
        None => "not tried".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(said: &str, code: i32, exceeded: Option<Exceeded>) -> Outcome {
        Outcome { said: said.into(), code: Some(code), exceeded, ..Outcome::default() }
    }

    fn sealed() -> Facts {
        let walls = Walls {
            no_new_privileges: true,
            seccomp: 2,
            processes: 2,
            unreachable: true,
            no_mount: true,
            no_namespace: true,
            ..Walls::default()
        };
        Facts {
            walls,
            owner: Some(300_000),
            memory: outcome("", 137, Some(Exceeded::Memory)),
            processes: outcome("46", 0, None),
            cpu: outcome("260", 0, None),
            disk: outcome("", 137, Some(Exceeded::Disk)),
        }
    }

    fn check(change: impl FnOnce(&mut Facts), missing: &[Guarantee]) {
        let mut facts = sealed();
        change(&mut facts);
        let given = judge(&facts, |_| Means { by: Some("something".into()), fix: "mend it".into() });
        let found: Vec<_> = given.iter().filter(|given| !given.held).map(|given| given.guarantee).collect();
        assert_eq!((found.as_slice(), given.len()), (missing, ALL.len()));
    }

    #[test]
    fn what_is_sealed_gives_everything() {
        check(|_| {}, &[]);
    }

    #[test]
    fn each_hole_is_seen_as_the_guarantee_that_it_breaks() {
        check(|facts| facts.walls.capabilities = 1, &[Guarantee::Capabilities]);
        check(|facts| facts.walls.processes = 4, &[Guarantee::Namespaces]);
        check(|facts| facts.walls.writable.push("/usr".into()), &[Guarantee::Namespaces]);
        check(|facts| facts.walls.no_new_privileges = false, &[Guarantee::Privileges]);
        check(|facts| facts.owner = Some(0), &[Guarantee::Users]);
        check(|facts| facts.owner = None, &[Guarantee::Users]);
        check(|facts| facts.walls.no_namespace = false, &[Guarantee::Nesting]);
        check(|facts| facts.walls.seccomp = 0, &[Guarantee::Seccomp]);
        check(|facts| facts.walls.interfaces.push("eth0".into()), &[Guarantee::Network]);
        check(|facts| facts.walls.unreachable = false, &[Guarantee::Network]);
    }

    #[test]
    fn each_line_of_one_sandbox_is_told_of_apart() {
        let line = serde_json::to_string(&sealed().walls).unwrap();
        let killed = |said: &str| told(outcome(said, 137, Some(Exceeded::Memory)));
        let Told { walls, processes, memory } = killed(&format!("{line}\n46")).unwrap();
        assert_eq!((walls, processes), (sealed().walls, sealed().processes));
        assert_eq!(memory, sealed().memory);
        let unlimited = told(outcome(&format!("{line}\n96\n160"), 0, None)).unwrap();
        assert_eq!((unlimited.processes, unlimited.memory), (outcome("96", 0, None), outcome("160", 0, None)));
        let failed = told(outcome(&line, 101, None)).unwrap();
        assert_eq!(failed.processes, outcome("", 101, None), "it never told of the threads");
        assert_eq!(failed.memory, outcome("", 101, None));
        assert!(killed("").is_err());
    }

    #[test]
    fn what_held_by_chance_is_not_held() {
        let given = judge(&sealed(), |_| Means { by: None, fix: "mend it".into() });
        assert!(given.iter().all(|given| !given.held));
    }

    #[test]
    fn what_a_trial_complained_of_is_told() {
        let full = Outcome { complaint: "No space left on device".into(), ..outcome("", 1, None) };
        assert!(taken(&full, "MiB", "4").ends_with("failed: No space left on device"));
    }

    #[test]
    fn who_gets_all_that_it_wants_is_not_limited() {
        check(|facts| facts.memory = outcome("160", 0, None), &[Guarantee::Memory]);
        check(|facts| facts.processes = outcome("96", 0, None), &[Guarantee::Processes]);
        check(|facts| facts.processes = outcome("", 101, None), &[Guarantee::Processes]);
        check(|facts| facts.cpu = outcome("501", 0, None), &[Guarantee::Cpu]);
        check(|facts| facts.disk = outcome("24", 0, None), &[Guarantee::Disk]);
    }
}
