//! A worker that is set up by a file, and that tells of itself.

use crate::board::{TOKEN, job, step};
use crate::fleet::{BINARY, NOBODY, can_seal, command, eventually, free_port};
use crate::{Board, Forge, set_up};
use protocol::Status;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn page(address: &str) -> String {
    let (mut stream, mut page) = (TcpStream::connect(address).unwrap(), String::new());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn doctor(file: &str, args: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker.toml");
    fs::write(&path, file).unwrap();
    Command::new(BINARY).args(["doctor", "--config"]).arg(path).args(args).env("DOCKER_HOST", NOBODY).output().unwrap()
}

#[test]
fn an_error_in_the_file_is_told_with_file_line_and_key() {
    let output = doctor("builds_root = \"/tmp\"\nslots = 100000\n", &[]);
    assert_eq!(output.status.code(), Some(78));
    assert!(said(&output).contains("worker.toml:2: slots: "), "{}", said(&output));
}

#[test]
fn a_file_that_was_named_and_is_not_there_is_told() {
    let output = Command::new(BINARY).args(["doctor", "--config", "/nowhere/worker.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(said(&output).contains("/nowhere/worker.toml: the settings can't be read"), "{}", said(&output));
}

#[test]
fn the_environment_goes_before_the_file_and_an_option_before_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker.toml");
    fs::write(&path, "slots = 3\nbuilds_root = \"/tmp\"\n").unwrap();
    let told = |variable: Option<&str>, args: &[&str]| {
        let mut doctor = Command::new(BINARY);
        doctor.arg("doctor").args(args).env("DOCKER_HOST", NOBODY).env("CALLBOARD_WORKER_CONFIG", &path);
        variable.map(|slots| doctor.env("CALLBOARD_WORKER_SLOTS", slots));
        said(&doctor.output().unwrap())
    };
    assert!(told(None, &[]).contains("enough for 3 slots"));
    assert!(told(Some("4"), &[]).contains("enough for 4 slots"));
    assert!(told(Some("4"), &["--slots", "5"]).contains("enough for 5 slots"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_by_its_file_alone_and_tells_how_it_does() {
    if !can_seal() {
        return;
    }
    let (board, forge, directory) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let [config, token, root] = ["worker.toml", "token", "builds"].map(|name| directory.path().join(name));
    fs::write(&token, TOKEN).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let lines = [
        format!("api_url = {:?}\ntoken_file = {token:?}\nbuilds_root = {root:?}\n", board.url),
        format!("ca_bundle = {:?}\negress_allow = [{:?}]\n", forge.ca(), forge.address),
        format!("metrics_addr = {address:?}\nkill_grace_ms = 300\nfree_mib_min = 1\nname = \"by-file\"\n"),
    ];
    fs::write(&config, lines.concat()).unwrap();
    let mut worker =
        Command::new(BINARY).args(["run", "--config"]).arg(&config).env("DOCKER_HOST", NOBODY).spawn().unwrap();
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["echo hello"])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert_eq!(board.heard().claims[0].worker.name, "by-file");

    let health = || Command::new(BINARY).args(["health", "--config"]).arg(&config).output().unwrap();
    assert!(health().status.success(), "{}", said(&health()));
    let page = page(&address);
    for line in [
        "callboard_worker_info{version=\"0.1.0\",isolation=\"bubblewrap\"} 1\n",
        "callboard_worker_builds_ended_total{status=\"success\",reason=\"\"} 1\n",
        "callboard_worker_claims_total{answer=\"build\"} 1\n",
        "callboard_worker_troubles_in_a_row 0\n",
    ] {
        assert!(page.contains(line), "{line:?} is not in {page}");
    }
    let bytes = page.lines().find_map(|line| line.strip_prefix("callboard_worker_log_bytes_total ")).unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 0, "{page}");
    assert!(!page.contains("app") && !page.contains(&report.commit.unwrap()), "no tenant in {page}");
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(health().status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_heartbeats_are_not_answered_is_not_well() {
    let address = format!("127.0.0.1:{}", free_port());
    let Some((board, forge, worker)) = set_up(&["--metrics-addr", &address]).await else { return };
    board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    let health = || Command::new(BINARY).args(["health", "--metrics-addr", &address]).output().unwrap();
    assert!(health().status.success(), "{}", said(&health()));
    board.heard().away = true;
    let told = eventually("a worker that is not well", || Some(health()).filter(|output| !output.status.success()));
    assert!(said(&told).contains("heartbeats in a row were not acknowledged"), "{}", said(&told));
    board.heard().away = false;
    eventually("a worker that is well again", || health().status.success().then_some(()));
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    if !can_seal() {
        return;
    }
    let (board, forge, root) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let taken = board.url.trim_start_matches("http://").to_owned();
    let mut run = command(&board, &forge, root.path(), "run");
    let output = run.args(["--metrics-addr", &taken]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("metrics can't be served on {taken}")), "{}", said(&output));
}
