//! The repository that is served: over https alone, by its own authority, shallow, by commit.

use localstack::git_https::GitHttps;
use std::path::Path;
use std::process::{Command, Output};

fn git(dir: &Path, args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(args);
    for name in
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "SSL_CERT_FILE"]
    {
        git.env_remove(name);
    }
    git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git runs")
}

fn must(dir: &Path, args: &[&str]) -> String {
    let said = git(dir, args);
    assert!(said.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text").trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_cloned_with_its_authority_and_a_commit_is_fetched_by_its_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("source");
    std::fs::create_dir(&source).expect("made");
    must(&source, &["init", "--quiet", "--initial-branch=trunk"]);
    must(&source, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    let first = must(&source, &["rev-parse", "HEAD"]);
    must(&source, &["commit", "--quiet", "--allow-empty", "-m", "second"]);
    let served = GitHttps::serve(&source, dir.path()).await.expect("served");
    let authority = format!("http.sslCAInfo={}", served.authority().display());
    let copy = dir.path().join("copy");
    let url = served.url();
    assert!(!git(dir.path(), &["clone", "--quiet", &url, "stranger"]).status.success(), "without its authority");
    must(dir.path(), &["-c", &authority, "clone", "--quiet", "--depth", "1", &url, "copy"]);
    assert_eq!(must(&copy, &["rev-parse", "HEAD"]), must(&source, &["rev-parse", "HEAD"]), "HEAD is served as main");
    must(&copy, &["-c", &authority, "fetch", "--quiet", "--depth", "1", "origin", &first]);
    assert_eq!(must(&copy, &["rev-parse", "FETCH_HEAD"]), first);
}

#[tokio::test]
async fn what_is_no_repository_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = GitHttps::serve(dir.path(), dir.path()).await.expect_err("refused");
    assert!(format!("{refused:#}").contains("is not a git repository: name one"), "{refused:#}");
}

fn repository(dir: &Path, commits: usize) -> std::path::PathBuf {
    let source = dir.join("source");
    std::fs::create_dir(&source).expect("made");
    must(&source, &["init", "--quiet", "--initial-branch=trunk"]);
    for commit in 0..commits {
        must(&source, &["commit", "--quiet", "--allow-empty", "-m", &commit.to_string()]);
        must(&source, &["branch", &format!("branch-{commit}")]);
    }
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hook_of_the_repository_runs_with_our_rights() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = repository(dir.path(), 1);
    let trace = dir.path().join("a-hook-ran");
    for name in ["pre-push", "reference-transaction", "post-update", "pre-receive"] {
        let hook = source.join(".git/hooks").join(name);
        std::fs::create_dir_all(source.join(".git/hooks")).expect("made");
        std::fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", trace.display())).expect("written");
        std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    }
    GitHttps::serve(&source, dir.path()).await.expect("served");
    assert!(!trace.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_clone_is_served_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = repository(dir.path(), 3);
    must(dir.path(), &["clone", "--quiet", "--depth", "1", &format!("file://{}", source.display()), "shallow"]);
    let served = GitHttps::serve(&dir.path().join("shallow"), dir.path()).await.expect("served");
    let authority = format!("http.sslCAInfo={}", served.authority().display());
    must(dir.path(), &["-c", &authority, "clone", "--quiet", "--depth", "1", &served.url(), "copy"]);
    assert_eq!(must(&dir.path().join("copy"), &["rev-parse", "HEAD"]), must(&source, &["rev-parse", "HEAD"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_git_compressed_is_understood() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = repository(dir.path(), 60);
    let served = GitHttps::serve(&source, dir.path()).await.expect("served");
    let authority = format!("http.sslCAInfo={}", served.authority().display());
    must(dir.path(), &["-c", &authority, "clone", "--quiet", &served.url(), "copy"]);
    assert_eq!(must(&dir.path().join("copy"), &["branch", "--remotes"]).lines().count(), 63);
}
