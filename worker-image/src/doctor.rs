//! What a worker needs of its host, and what its back ends give there: found and tried, or the fix in one line.

mod previews;

use crate::config::Place;
use crate::descriptors;
use crate::isolation::bubblewrap::{Abilities, Bubblewrap, find};
use crate::isolation::docker::{Docker, Scope, Settings};
use crate::isolation::ecs;
use crate::isolation::guarantees::{ALL, Column, Given, Guarantee, refused};
use crate::isolation::{Choice, Isolation};
use crate::network::Network;
use crate::previews::settings::Settings as Previews;
use crate::workplace::{self, Workplace};
use futures::future::join_all;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// Whether it is as it must be.
    pub ok: bool,
    /// Whether no build can run without it.
    pub needed: bool,
    /// What was found.
    pub found: String,
    /// What to do, if it is not as it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, ok: true, needed: true, found: found.into(), fix: None }
    }

    fn bad(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, ok: false, needed: true, found: found.into(), fix: Some(fix.into()) }
    }

    fn weak(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { needed: false, ..Self::bad(name, found, fix) }
    }
}

/// Looks at everything, and tries what steps could. Leaves nothing, but for this program's own image where there are containers.
pub async fn examine(
    place: &Place,
    (choice, containers, tasks): (Choice, Settings, ecs::Settings),
    slots: u32,
    descriptors: u64,
    previews: &Previews,
    accepted: BTreeSet<Guarantee>,
) -> Examined {
    let mut host = match choice {
        Choice::Auto | Choice::Bubblewrap => of_bubblewrap(place).await,
        Choice::Docker => Vec::new(),
        Choice::Ecs => vec![of_ecs(&tasks)],
    };
    host.extend([certificates(), builds_root(&place.builds_root), files(slots, descriptors)]);
    host.extend(previews::of_previews(previews, &place.builds_root));
    let isolation = if choice == Choice::Ecs {
        vec![Column { isolation: "ecs".into(), given: ecs::guarantees::guarantees(tasks.launch_type) }]
    } else {
        columns(place, choice, containers, &mut host).await.unwrap_or_else(|why| {
            host.push(Finding::bad("a trial", why, "use a --builds-root that this user can write"));
            Vec::new()
        })
    };
    Examined { host, isolation, accepted }
}

/// Whether a worker is told all that it needs for ECS. Nothing is asked of ECS: a worker does that when it starts.
fn of_ecs(tasks: &ecs::Settings) -> Finding {
    match tasks.fit() {
        Ok(fit) => Finding::good("ecs", format!("builds would run in the cluster {}", fit.cluster)),
        Err(why) => Finding::bad("ecs", why, "set it; README.md has all settings"),
    }
}

async fn of_bubblewrap(place: &Place) -> Vec<Finding> {
    vec![bubblewrap(), nesting(), user_namespaces(place), network(place).await, git()]
}

/// Whether a worker of so many slots has the descriptors for it.
fn files(slots: u32, descriptors: u64) -> Finding {
    let name = "open files";
    match descriptors::too_few(slots, descriptors) {
        None => Finding::good(name, format!("at most {descriptors}, enough for {slots} slots")),
        Some(few) => Finding::bad(name, few, descriptors::fix(slots)),
    }
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn bubblewrap() -> Finding {
    match find("bwrap") {
        Some(path) => Finding::good("bubblewrap", version(&path).unwrap_or_default()),
        None => Finding::bad("bubblewrap", "not found", "install it: apt-get install bubblewrap"),
    }
}

fn nesting() -> Finding {
    let able =
        find("bwrap").is_some_and(|path| Abilities::of(&path) == Abilities { no_nesting: true, tmpfs_size: true });
    if able {
        return Finding::good("nested namespaces", "closed to steps");
    }
    Finding::weak("nested namespaces", "open to steps, and /tmp is not bounded", "install bubblewrap 0.8 or later")
}

/// Makes a build's network, which leads nowhere.
async fn network(place: &Place) -> Finding {
    let name = "network";
    let network = match Network::start(&place.binary, "doctor", Path::new("/nowhere"), None, None).await {
        Ok(network) => network,
        Err(error) => return Finding::bad(name, error.to_string(), namespaces_fix()),
    };
    let weak = network.weak.clone();
    network.end().await;
    match weak {
        None => Finding::good(name, "all TCP is led to a relay"),
        Some(why) => Finding::weak(
            name,
            format!("only programs that heed HTTP_PROXY get out: {why}"),
            "use a kernel with nftables (nf_tables, nft_redir)",
        ),
    }
}

/// Makes the namespaces that a sandbox has, as the user that a build would have.
fn user_namespaces(place: &Place) -> Finding {
    let name = "user namespaces";
    let Some(bwrap) = find("bwrap") else {
        return Finding::bad(name, "can't be tried without bubblewrap", "install bubblewrap first");
    };
    let mut command = Command::new(bwrap);
    command.args(["--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    command.arg("true").current_dir("/");
    if let Some(id) = place.run_as(0) {
        command.uid(id).gid(id);
    }
    match command.output() {
        Ok(output) if output.status.success() => Finding::good(name, "a sandbox starts"),
        Ok(output) => Finding::bad(name, String::from_utf8_lossy(&output.stderr).trim(), namespaces_fix()),
        Err(error) => Finding::bad(name, error.to_string(), namespaces_fix()),
    }
}

fn namespaces_fix() -> String {
    let says = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".into();
    }
    if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return "sysctl -w kernel.unprivileged_userns_clone=1".into();
    }
    if says("/proc/sys/user/max_user_namespaces", "0") {
        return "sysctl -w user.max_user_namespaces=15000".into();
    }
    "in a container, start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`".into()
}

fn git() -> Finding {
    match find("git") {
        Some(path) => Finding::good("git", version(&path).unwrap_or_default()),
        None => Finding::bad("git", "not found", "install it: apt-get install git"),
    }
}

fn certificates() -> Finding {
    if workplace::has(Path::new("/etc/ssl/certs")) || workplace::has(Path::new("/etc/pki/tls/certs")) {
        return Finding::good("certificates", "found");
    }
    Finding::weak("certificates", "not found: no clone can trust its server", "apt-get install ca-certificates")
}

fn builds_root(root: &Path) -> Finding {
    let name = "builds root";
    let Some(nearest) = root.ancestors().find(|path| workplace::has(path)) else {
        return Finding::bad(name, "not found", "use an absolute --builds-root");
    };
    let shown = root.display();
    let writable = nix::unistd::access(nearest, nix::unistd::AccessFlags::W_OK).is_ok();
    if !writable {
        return Finding::bad(name, format!("{shown} can't be written"), "use a --builds-root that this user can write");
    }
    let closed = nix::unistd::geteuid().is_root().then(|| workplace::closed(nearest)).flatten();
    match closed {
        Some(closed) => {
            let closed = closed.display();
            Finding::bad(name, format!("{shown}: other users may not enter {closed}"), format!("chmod o+x {closed}"))
        }
        None => Finding::good(name, shown.to_string()),
    }
}

/// What was found: of the host, and of each back end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// What the worker needs.
    pub host: Vec<Finding>,
    /// What back ends give, tried for real.
    pub isolation: Vec<Column>,
    /// What the operator puts up with.
    pub accepted: BTreeSet<Guarantee>,
}

impl Examined {
    /// Whether a worker would start here: a back end that was tried must give all that is not accepted.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        let is_complete = |column: &Column| refused(&column.given, &self.accepted).is_empty();
        self.host.iter().all(|finding| finding.ok || !finding.needed) && self.isolation.iter().any(is_complete)
    }

    /// The same as lines for a person.
    #[must_use]
    pub fn text(&self) -> String {
        let host: String = self.host.iter().map(Finding::line).collect();
        host + "\n" + &self.table() + "\n" + &self.reasons()
    }

    /// Back ends by guarantee. That of ECS can't be tried from here: where it is not chosen, the table has what is declared there.
    fn table(&self) -> String {
        let declared = if self.isolation.iter().any(|column| column.isolation == "ecs") {
            Vec::new()
        } else {
            ecs::guarantees::guarantees(ecs::LaunchType::default())
        };
        let other = (!declared.is_empty()).then_some("ecs");
        let names = self.isolation.iter().map(|column| column.isolation.as_str()).chain(other);
        let cells = |guarantee: Guarantee| {
            let said = declared.iter().find(|given| given.guarantee == guarantee);
            let said = said.map(|given| if given.held { "declared" } else { "no" });
            self.isolation
                .iter()
                .map(move |column| self.word(column, guarantee))
                .chain(said)
                .map(cell)
                .collect::<String>()
        };
        let head = format!("{:<19} {}", "guarantee", names.map(cell).collect::<String>());
        let rows = ALL.iter().map(|guarantee| format!("{:<19} {}", guarantee.as_str(), cells(*guarantee)));
        [head].into_iter().chain(rows).map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    fn word(&self, column: &Column, guarantee: Guarantee) -> &'static str {
        match column.given.iter().find(|given| given.guarantee == guarantee) {
            Some(given) if given.held => "ok",
            Some(_) if self.accepted.contains(&guarantee) => "accepted",
            Some(_) => "MISSING",
            None => "unknown",
        }
    }

    fn reasons(&self) -> String {
        let line = |column: &Column, given: &Given| {
            let fix = given.fix.as_ref().map(|fix| format!("\n{:20}fix: {fix}", "")).unwrap_or_default();
            format!("{:<19} {}: {}{fix}\n", given.guarantee.as_str(), column.isolation, given.found)
        };
        self.isolation.iter().flat_map(|column| column.given.iter().map(move |given| line(column, given))).collect()
    }
}

fn cell(word: &str) -> String {
    format!("{word:<12}")
}

impl Finding {
    fn line(&self) -> String {
        let word = match (self.ok, self.needed) {
            (true, _) => "ok",
            (false, true) => "MISSING",
            (false, false) => "weak",
        };
        let fix = self.fix.as_ref().map(|fix| format!("\n{:27}fix: {fix}", "")).unwrap_or_default();
        format!("{:<18} {word:<7} {}{fix}\n", self.name, self.found)
    }
}

/// Tries each back end that is chosen and there, in a builds root of its own beside the real one, so that it needs no worker to be
/// stopped. Nothing of it is left.
async fn columns(
    place: &Place,
    choice: Choice,
    containers: Settings,
    host: &mut Vec<Finding>,
) -> Result<Vec<Column>, String> {
    let beside = place.builds_root.ancestors().find(|path| workplace::has(path)).unwrap_or(Path::new("/"));
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", beside.display());
    let root = tempfile::Builder::new().prefix(".doctor-").tempdir_in(beside).map_err(|error| said(&error))?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).map_err(|error| said(&error))?;
    let place = Place { builds_root: root.path().to_path_buf(), ..place.clone() };
    let _workplace = Workplace::take(&place).map_err(|error| error.to_string())?;
    let mut back_ends: Vec<Box<dyn Isolation>> = Vec::new();
    if let Some(program) = find("bwrap").filter(|_| choice != Choice::Docker) {
        back_ends.push(Box::new(Bubblewrap::new(program, place.clone())));
    }
    if choice == Choice::Docker || (choice == Choice::Auto && containers.socket.exists()) {
        let socket = containers.socket.display().to_string();
        match Docker::new(containers, place.clone(), Scope::new("doctor", root.path())).await {
            Ok(docker) => {
                host.push(Finding::good("containers", socket));
                back_ends.push(Box::new(docker));
            }
            Err(why) => host.push(no_containers(choice, why)),
        }
    }
    let column = async |back_end: &dyn Isolation| Column {
        isolation: back_end.name().into(),
        given: back_end.guarantees().await,
    };
    Ok(join_all(back_ends.iter().map(|back_end| column(back_end.as_ref()))).await)
}

fn no_containers(choice: Choice, why: String) -> Finding {
    let fix = "start Docker's daemon, let this user use its socket, or name another with --docker-host";
    if choice == Choice::Docker { Finding::bad("containers", why, fix) } else { Finding::weak("containers", why, fix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(host: Vec<Finding>, given: Vec<Given>, accepted: &[Guarantee]) -> Examined {
        let isolation = vec![Column { isolation: "bubblewrap".into(), given }];
        Examined { host, isolation, accepted: accepted.iter().copied().collect() }
    }

    #[test]
    fn a_weakness_is_told_but_does_not_keep_builds_from_running() {
        let weak = examined(vec![Finding::weak("nesting", "open", "upgrade")], Vec::new(), &[]);
        assert!(weak.is_fit() && weak.text().contains("fix: upgrade"));
    }

    #[test]
    fn what_is_needed_and_missing_keeps_builds_from_running() {
        let host = vec![Finding::good("git", "2"), Finding::bad("bubblewrap", "not found", "install")];
        assert!(!examined(host, Vec::new(), &[]).is_fit());
        assert!(!Examined { isolation: Vec::new(), ..examined(Vec::new(), Vec::new(), &[]) }.is_fit());
    }

    #[test]
    fn a_guarantee_that_is_missing_is_in_the_table_and_keeps_builds_from_running_until_it_is_accepted() {
        let given = || {
            let missing = Given::missing(Guarantee::Memory, "no control groups", "mount them");
            vec![Given::held(Guarantee::Seccomp, "a filter"), missing]
        };
        let refused = examined(Vec::new(), given(), &[]);
        assert!(!refused.is_fit());
        for line in ["bubblewrap  ecs\n", "memory              MISSING     declared\n", "fix: mount them\n"] {
            assert!(refused.text().contains(line), "{line:?} in {}", refused.text());
        }
        let accepted = examined(Vec::new(), given(), &[Guarantee::Memory]);
        assert!(accepted.is_fit() && accepted.text().contains("memory              accepted "), "{}", accepted.text());
    }
}
