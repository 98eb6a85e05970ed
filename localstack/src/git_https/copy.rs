//! Our own copy of a repository; and why there can't be one, in words that say what to do: git's own are about remotes.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Copies by a fetch into the copy, not by a push out of the repository: it may be another user's, and a push would run its
/// hooks and follow its settings with our rights. It may also be a shallow clone; then so is the copy.
pub(super) async fn copy(repository: &Path, bare: &Path) -> anyhow::Result<()> {
    let settings = settings_of(bare);
    fs::write(&settings, "[safe]\n\tdirectory = *\n[uploadpack]\n\tallowAnySHA1InWant = true\n")?;
    check(repository, &settings).await?;
    git(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(bare), &settings).await?;
    // A branch `main` of its own, if HEAD is another one, is not what is built: HEAD goes last.
    for refs in [&["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"][..], &["+HEAD:refs/heads/main"]] {
        let mut fetch = Command::new("git");
        fetch.arg("-C").arg(bare).args(["fetch", "--quiet", "--update-shallow", "--no-tags", "--"]).arg(repository);
        let shown = repository.display();
        let why = || format!("{shown} can't be copied (`git -C {shown} fsck --full` may say more)");
        git(fetch.args(refs), &settings).await.with_context(why)?;
    }
    Ok(())
}

/// Whether there is something to copy.
async fn check(repository: &Path, settings: &Path) -> anyhow::Result<()> {
    let shown = repository.display();
    match fs::metadata(repository) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => bail!("{shown} is a file: name the directory of a git repository"),
        Err(error) => bail!("{shown} can't be read: {error}; name the directory of a git repository"),
    }
    fs::read_dir(repository).with_context(|| format!("{shown} can't be read"))?;
    let ask = async |args: &[&str]| git(Command::new("git").arg("-C").arg(repository).args(args), settings).await;
    // Without git, that is what is said.
    git(Command::new("git").arg("--version"), settings).await?;
    let Ok(top) = ask(&["rev-parse", "--show-prefix"]).await else {
        bail!(
            "{shown} is not a git repository: name one, or make it one (cd {shown}; git init; git add -A; git commit -m first)"
        );
    };
    if !top.trim_ascii().is_empty() {
        let top = ask(&["rev-parse", "--show-toplevel"]).await?;
        bail!("{shown} is a part of a repository: name the whole, {}", String::from_utf8_lossy(&top).trim());
    }
    if ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await.is_err() {
        bail!(
            "{shown} has no commit yet, and what is built is HEAD: make one (cd {shown}; git add -A; git commit -m first)"
        );
    }
    Ok(())
}

/// Where git's settings for a copy are.
pub(super) fn settings_of(bare: &Path) -> PathBuf {
    bare.with_extension("gitconfig")
}

/// Runs git with `settings` as the only ones beside the repository's own; returns what it says.
pub(super) async fn git(command: &mut Command, settings: &Path) -> anyhow::Result<Vec<u8>> {
    // Set inside a hook, they would point git at another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let command = command.stdin(Stdio::null()).env("GIT_CONFIG_GLOBAL", settings).env("GIT_CONFIG_NOSYSTEM", "1");
    // What a partial clone lacks would be fetched as that clone's settings say.
    let command = command.env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C").kill_on_drop(true);
    let said = command.output().await.context("git can't be run: install it")?;
    if said.status.success() {
        return Ok(said.stdout);
    }
    bail!("git: {}", complaint(&String::from_utf8_lossy(&said.stderr)))
}

/// The first thing that git complains of; what follows are guesses about remotes and access rights.
fn complaint(said: &str) -> &str {
    let complaints =
        said.lines().filter_map(|line| line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")));
    complaints.map(str::trim).next().unwrap_or(said.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Now;

    async fn refused(repository: &Path) -> String {
        let dir = tempfile::tempdir().unwrap();
        let error = copy(repository, &dir.path().join("copy.git")).await.expect_err("there is nothing to copy");
        format!("{error:#}")
    }

    fn run(dir: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let status = Now::new("git").arg("-C").arg(dir).args(identity).args(args).status();
        assert!(status.unwrap().success(), "git {args:?}");
    }

    #[tokio::test]
    async fn what_is_no_repository_with_a_commit_is_told_in_our_words() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir_all(at("plain")).unwrap();
        fs::create_dir_all(at("empty")).unwrap();
        run(&at("empty"), &["init", "-q"]);
        fs::create_dir_all(at("whole/part")).unwrap();
        run(&at("whole"), &["init", "-q"]);
        fs::write(at("whole/part/a"), "").unwrap();
        run(&at("whole"), &["add", "-A"]);
        run(&at("whole"), &["commit", "-qm", "first"]);
        for (name, words) in [
            ("nowhere", "can't be read: No such file or directory"),
            ("file", "is a file: name the directory"),
            ("plain", "is not a git repository: name one, or make it one (cd "),
            ("empty", "has no commit yet, and what is built is HEAD: make one (cd "),
            ("whole/part", &format!("is a part of a repository: name the whole, {}", at("whole").display())),
        ] {
            let told = refused(&at(name)).await;
            assert!(told.contains(words) && told.contains(name), "{told}");
            assert!(["fatal", "remote", "git: "].iter().all(|word| !told.contains(word)), "{told}");
        }
        fs::remove_dir_all(at("whole/.git/objects")).unwrap();
        fs::create_dir(at("whole/.git/objects")).unwrap();
        let told = refused(&at("whole")).await;
        assert!(told.contains("whole") && told.lines().count() == 1, "{told}");
    }

    #[test]
    fn of_what_git_says_the_first_complaint_counts() {
        let said = "warning: x\nfatal: '/a' does not appear to be a git repository\nfatal: Could not read from remote repository.\n\n\
                    Please make sure you have the correct access rights\n";
        assert_eq!(complaint(said), "'/a' does not appear to be a git repository");
        assert_eq!(complaint("something else\n"), "something else");
    }
}
