//! The stack itself: its Postgres, its lock, its files, and that it goes on where it was.

#[path = "../../tests/skipped.rs"]
mod skipped;

use localstack::client::Client;
use localstack::postgres::Postgres;
use localstack::{Database, Options, Stack, UpOptions, leftovers, tokens};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::Status;
use rules::Timing;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use store::Store;
use tempfile::TempDir;

/// A directory that Postgres's user can come to.
fn directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("open to others");
    dir
}

fn options(dir: &Path) -> Options {
    Options { dir: dir.to_owned(), port: 0, database_url: None, timing: Some(Timing::default()) }
}

async fn answers(url: &str) -> bool {
    let store = Store::connect_lazy(url, 1).expect("an address");
    let answers = store.begin().await.is_ok();
    store.close().await;
    answers
}

#[tokio::test]
async fn postgres_wants_its_password_and_keeps_it_to_its_owner() {
    let dir = directory();
    let server = Postgres::start(dir.path()).await.expect("started");
    assert!(answers(server.url()).await);
    let password = fs::read_to_string(dir.path().join("postgres.password")).expect("there");
    assert!(!answers(&server.url().replace(&password, "guess")).await, "another password lets in");
    assert!(!answers(&server.url().replace(&format!(":{password}"), "")).await, "no password lets in");
    let mode = fs::metadata(dir.path().join("postgres.password")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for process in fs::read_dir("/proc").expect("there").flatten() {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains(&password));
    }
    let pid = server.pid().expect("it runs");
    server.stop().await;
    assert!(!leftovers::is_alive(pid), "it was waited for");
    assert_eq!(leftovers::processes(dir.path()), Vec::<u32>::new());
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back_and_the_stack_stops_as_quickly_as_ever() {
    let dir = directory();
    let stack = Stack::start(options(dir.path())).await.expect("started");
    let client = Client::new(stack.url(), stack.tokens().api.clone()).expect("a client");
    let server = || stack.postgres().and_then(Postgres::pid);
    let first = server().expect("it runs");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("killed");
    let begun = Instant::now();
    while server().is_none_or(|pid| pid == first) || client.workspace().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it did not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kill(Pid::from_raw(server().expect("it runs")), Signal::SIGKILL).expect("killed again");
    let begun = Instant::now();
    stack.stop().await.expect("stopped");
    assert!(begun.elapsed() < Duration::from_secs(10), "stopping took {:?}", begun.elapsed());
    assert_eq!(leftovers::processes(dir.path()), Vec::<u32>::new());
}

#[tokio::test]
async fn a_database_that_a_board_with_another_key_set_up_is_refused_and_nothing_is_left() {
    let dir = directory();
    let server = Postgres::start(dir.path()).await.expect("started");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let database_url = Some(server.url().to_owned());
    let stack = Stack::start(Options { database_url, ..options(&first) }).await.expect("started");
    stack.stop().await.expect("stopped");
    let up = |dir: &Path| {
        let database = Database { url: server.url().to_owned(), source: "DATABASE_URL of the environment" };
        let (port, dir) = (Some(0), Some(dir.to_owned()));
        localstack::up(UpOptions { port, dir, no_worker: true, database: Some(database), ..UpOptions::default() })
    };
    let refused = format!("{:#}", up(&second).await.expect_err("another key"));
    for word in ["DATABASE_URL of the environment", "secrets key", "copy that board's secrets.key", "second"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert!(!second.exists());
    let running = tokio::time::timeout(Duration::from_secs(5), up(&first)).await;
    assert!(running.is_err(), "the board that set it up is not refused: {running:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_outlived_its_stack_is_taken_over() {
    let dir = directory();
    let first = Postgres::start(dir.path()).await.expect("started");
    let url = first.url().to_owned();
    // As if the process had been killed: nothing is stopped.
    std::mem::forget(first);
    let second = Postgres::start(dir.path()).await.expect("started again");
    assert!(answers(second.url()).await && !answers(&url).await);
    second.stop().await;
}

#[tokio::test]
async fn a_closed_directory_is_refused_with_the_way_out() {
    if !nix::unistd::Uid::effective().is_root() {
        skipped::skip("root", "only as root does Postgres run as somebody else");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("closed to others");
    let refused = Stack::start(options(dir.path())).await.err().expect("closed").to_string();
    assert!(refused.contains("chmod o+x") && refused.contains("--dir"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0, "a refusal leaves nothing");
}

#[tokio::test]
async fn a_stack_goes_on_where_it_was_with_the_same_tokens() {
    let dir = directory();
    let first = Stack::start(options(dir.path())).await.expect("started");
    let api = first.tokens().api.clone();
    let client = Client::new(first.url(), api.clone()).expect("a client");
    let spec = r#"{ "repository": "https://git.example/a.git", "steps": [{ "name": "a", "commands": ["b"] }] }"#;
    client.apply("p", &serde_json::from_str(spec).expect("a pipeline")).await.expect("applied");
    let build = client.submit("p").await.expect("submitted").id;
    first.stop().await.expect("stopped");
    assert_eq!(leftovers::processes(dir.path()), Vec::<u32>::new());
    let second = Stack::start(options(dir.path())).await.expect("started again");
    assert_eq!(second.tokens().api, api);
    let client = Client::new(second.url(), api).expect("a client");
    assert_eq!(client.build(build).await.expect("there").status, Status::Pending);
    second.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_second_stack_on_a_directory_is_refused_and_a_lost_env_file_is_made_anew() {
    let dir = directory();
    let stack = Stack::start(options(dir.path())).await.expect("started");
    let refused = Stack::start(options(dir.path())).await.err().expect("refused").to_string();
    assert!(refused.contains(&format!("process {}", std::process::id())) && refused.contains("--dir"), "{refused}");
    let file = dir.path().join(tokens::FILE);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let names: Vec<String> = tokens::read(&file).expect("read").into_keys().collect();
    let expected =
        ["CALLBOARD_API_TOKEN", "CALLBOARD_OPERATOR_TOKEN", "CALLBOARD_URL", "CALLBOARD_WORKER_TOKEN", "DATABASE_URL"];
    assert_eq!(names, expected);
    stack.stop().await.expect("stopped");
    fs::remove_file(&file).expect("removed");
    let again = Stack::start(options(dir.path())).await.expect("started again");
    let client = Client::new(again.url(), again.tokens().api.clone()).expect("a client");
    client.workspace().await.expect("the new token is good");
    again.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_the_way_out() {
    let dir = directory();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let place = dir.path().join("boards/one");
    let refused = Stack::start(Options { port, ..options(&place) }).await.err().expect("refused").to_string();
    assert!(refused.contains(&port.to_string()) && refused.contains("--port"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0, "a refusal leaves nothing");
    assert_eq!(leftovers::processes(dir.path()), Vec::<u32>::new());
}

#[tokio::test]
async fn data_that_were_never_finished_are_made_anew() {
    let dir = directory();
    let unfinished = dir.path().join("postgres.unfinished");
    fs::create_dir(&unfinished).expect("made");
    fs::write(unfinished.join("PG_VERSION"), "15\n").expect("written");
    let server = Postgres::start(dir.path()).await.expect("started");
    assert!(answers(server.url()).await);
    assert!(!unfinished.exists());
    server.stop().await;
}

#[tokio::test]
async fn a_process_that_has_the_number_of_a_crashed_server_is_left_alone() {
    let dir = directory();
    let server = Postgres::start(dir.path()).await.expect("started");
    let pid_file = dir.path().join("postgres/postmaster.pid");
    let text = fs::read_to_string(&pid_file).expect("there");
    let owner = fs::metadata(&pid_file).expect("there");
    server.stop().await;
    let mut sleep = std::process::Command::new("sleep");
    // The server's own user: only then can its number be mistaken.
    let mut other = sleep.arg("100").uid(owner.uid()).gid(owner.gid()).spawn().expect("another process");
    let (_, rest) = text.split_once('\n').expect("lines");
    fs::write(&pid_file, format!("{}\n{rest}", other.id())).expect("written");
    chown(&pid_file, Some(owner.uid()), Some(owner.gid())).expect("given to the server's user");
    let server = Postgres::start(dir.path()).await.expect("started in spite of it");
    assert!(answers(server.url()).await);
    assert!(other.try_wait().expect("asked").is_none(), "the other process was ended");
    server.stop().await;
    other.kill().and_then(|()| other.wait()).expect("ended");
}
