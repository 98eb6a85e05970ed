//! Fetches what is to be built, in a sandbox like a step's: a repository's bytes never meet the worker's own rights.
//!
//! Shallow, by https alone, without prompts, hooks or helpers. The password is in a file that only the clone's sandbox
//! has; it reaches neither an argument nor the repository's configuration, and it is given to the repository's own host
//! alone, wherever that redirects to.

use crate::isolation::bubblewrap::names::CERTIFICATES;
use crate::isolation::plan::{Env, PlanFile};
use crate::script::{base_env, quoted};
use protocol::worker::{Job, Secret};
use std::fs;
use std::io;
use std::path::Path;

/// Where the system's certificates are, by distribution.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why a job's source is not even tried.
#[must_use]
pub fn unfetchable(job: &Job) -> Option<String> {
    if rules::runnable::unrunnable(true, &job.repository, &job.git_ref).is_some() {
        return Some("the repository is not an https address without credentials, or the ref is none".into());
    }
    job.commit.as_deref().filter(|commit| !rules::runnable::is_commit(commit)).map(|_| "the commit is none".into())
}

/// The clone's script, which begins in the empty workspace: it fetches into it and says the commit on standard output.
#[must_use]
pub fn script(job: &Job) -> String {
    let git = "git -c protocol.allow=never -c protocol.https.allow=always -c core.hooksPath=/dev/null \
               -c credential.helper= -c advice.detachedHead=false -c init.defaultBranch=main -c gc.auto=0";
    let what = job.commit.as_deref().unwrap_or(&job.git_ref);
    let mut lines = vec![
        format!("{git} init --quiet ."),
        format!("{git} remote add origin {}", quoted(&job.repository)),
        format!("{git} fetch --quiet --no-tags --depth 1 origin {}", quoted(what)),
        format!("{git} checkout --quiet --detach FETCH_HEAD"),
    ];
    if job.submodules {
        lines.push(format!("{git} submodule --quiet update --init --recursive --depth 1"));
    }
    lines.push(format!("{git} rev-parse HEAD"));
    lines.join("\n")
}

/// The environment of a clone that finds its own files `inside`.
#[must_use]
pub fn env(job: &Job, inside: &str, with_certificates: bool) -> Env {
    let mut env = base_env(job);
    let own = [
        ("HOME", "/tmp"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        // A step may serve itself on loopback; what a clone finds there is the proxy's to decide.
        ("no_proxy", ""),
        ("NO_PROXY", ""),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env.insert("GIT_ASKPASS".into(), format!("{inside}/askpass"));
    if with_certificates {
        env.insert("GIT_SSL_CAINFO".into(), format!("{inside}/{CERTIFICATES}"));
    }
    env
}

/// The clone's files, which it finds `inside`: what answers git's questions, and the answers.
#[must_use]
pub fn files(job: &Job, inside: &str) -> Vec<PlanFile> {
    let file = |name: &str, mode, content: String| PlanFile { name: name.into(), mode, content };
    let Some(Secret(secret)) = &job.clone_secret else {
        return vec![file("askpass", 0o700, "#!/bin/sh\nexit 1\n".into())];
    };
    // A bare token goes with any user name at the usual hosts.
    let (user, password) = secret.trim().split_once(':').unwrap_or(("x-access-token", secret.trim()));
    vec![
        file("askpass", 0o700, askpass(&job.repository, inside)),
        file("user", 0o600, user.to_owned()),
        file("password", 0o600, password.to_owned()),
    ]
}

/// Git asks `Username for 'https://host': ` and `Password for 'https://user@host': `. The end must match too: a redirect
/// may choose a user name that looks like a host.
fn askpass(repository: &str, inside: &str) -> String {
    let rest = repository.split_once("://").map_or("", |(_, rest)| rest);
    let host = quoted(rest.split('/').next().unwrap_or(""));
    format!(
        "#!/bin/sh\ncase \"$1\" in\n\
         \"Username for 'https://\"{host}\"': \") cat {inside}/user ;;\n\
         \"Password for 'https://\"*@{host}\"': \") cat {inside}/password ;;\n\
         *) exit 1 ;;\nesac\n"
    )
}

/// What the repository's host and the registries are shown: whole, and the password of each by itself.
pub fn secrets(job: &Job) -> impl Iterator<Item = &str> {
    logins(job.clone_secret.iter().chain(job.registry_secrets.values()))
}

/// Each of `secrets` whole, and its password by itself.
pub fn logins<'a>(secrets: impl Iterator<Item = &'a Secret>) -> impl Iterator<Item = &'a str> {
    let whole = secrets.map(|secret| secret.0.as_str());
    whole.flat_map(|secret| [Some(secret), secret.split_once(':').map(|(_, password)| password)]).flatten()
}

/// Writes the certificates that the clone trusts: the system's and the operator's.
///
/// # Errors
///
/// If the file can't be written.
pub fn write_certificates(to: &Path, operators: &[u8]) -> io::Result<()> {
    let system = SYSTEM_CERTIFICATES.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default();
    fs::write(to, [&system, &b"\n"[..], operators].concat())
}

/// What went wrong, in git's own words, from the end of what it wrote.
#[must_use]
pub fn complaint(written: &str) -> String {
    let is_telling = |line: &&str| ["fatal:", "error:", "remote:"].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = written.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let telling: Vec<&str> = lines.iter().copied().filter(is_telling).collect();
    let chosen = if telling.is_empty() { &lines } else { &telling };
    let said = chosen[chosen.len().saturating_sub(3)..].join("; ");
    let name = said.rsplit_once("couldn't find remote ref ").map_or("", |(_, name)| name);
    let may_be_short = (4..40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if may_be_short { format!("{said} (a commit is given by all of its 40 or 64 digits)") } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn answers(asked: &str) -> Option<i32> {
        let directory = tempfile::tempdir().unwrap();
        let script = askpass("https://git.example:8443/team/app.git", directory.path().to_str().unwrap());
        for name in ["user", "password"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        Command::new("sh").args(["-c", &script, "askpass", asked]).output().unwrap().status.code()
    }

    #[test]
    fn the_password_is_for_the_repositorys_own_host() {
        assert_eq!(answers("Username for 'https://git.example:8443': "), Some(0));
        assert_eq!(answers("Password for 'https://me@git.example:8443': "), Some(0));
        for asked in [
            "Password for 'https://me@evil.example': ",
            "Password for 'https://me@evil.example:8443/git.example:8443': ",
            "Username for 'https://git.example:8443.evil.example': ",
            "Password for 'http://me@git.example:8443': ",
            "Password for 'https://me@git.example:8443'@evil.example': ",
        ] {
            assert_eq!(answers(asked), Some(1), "{asked}");
        }
    }

    #[test]
    fn a_complaint_is_what_git_said_last() {
        assert_eq!(complaint("noise\nfatal: couldn't find remote ref nope\n"), "fatal: couldn't find remote ref nope");
        let short = complaint("fatal: couldn't find remote ref 8f4d1fd0\n");
        assert_eq!(short, "fatal: couldn't find remote ref 8f4d1fd0 (a commit is given by all of its 40 or 64 digits)");
        assert_eq!(complaint("a\nb\nc\nd\n"), "b; c; d");
        assert_eq!(complaint(""), "");
    }
}
