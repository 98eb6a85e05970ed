//! What only containers have: images, and a daemon.

use crate::back_ends::{BackEnd, HOST_IMAGE, ask, containers, socket};
use crate::board::{TOKEN, job, step};
use crate::fleet::command;
use crate::fleet::{BINARY, eventually};
use crate::{Board, Forge, Worker, set_up_in};
use callboard_worker::proc;
use nix::sys::signal::Signal;
use protocol::log::Stream;
use protocol::{EndReason, Status};
use std::process::{Child, Command, Stdio};

#[tokio::test(flavor = "multi_thread")]
async fn a_step_runs_in_an_image_that_has_no_library_of_ours() {
    let Some((board, forge, worker)) = set_up_in(BackEnd::Docker, &[]).await else { return };
    let mut bare = step("bare", &["cat hello.txt", "ls /lib64 /usr/lib | wc -l", "busybox | head -1 | cut -c1-7"]);
    bare.image = "callboard-test:busybox".into();
    let report = board.report(board.offer(job(&forge.url(), vec![bare]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert!(board.log_of(Stream::Stdout).contains("hello from the repository\n"), "{}", board.log());
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn both_back_ends_share_one_workspace() {
    let Some((board, forge, worker)) = set_up_in(BackEnd::Auto, &[]).await else { return };
    let mut contained = step("contained", &["cat here", "echo $FLAVOUR", "echo contained > there"]);
    contained.image = HOST_IMAGE.into();
    let steps =
        vec![step("sealed", &["echo sealed > here"]), contained, step("again", &["cat there; test ! -e /.dockerenv"])];
    let report = board.report(board.offer(job(&forge.url(), steps))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let stdout = board.log_of(Stream::Stdout);
    for line in ["sealed\n", "image\n", "contained\n"] {
        assert!(stdout.contains(line), "{line:?} is not in {stdout}");
    }
    assert_eq!(board.heard().claims[0].worker.isolation, ["bubblewrap", "docker"]);
    worker.is_tidy();
}

/// A worker that is itself in a container, with the daemon's socket and nothing else of this host's but its programs.
fn contained_worker(board: &Board, forge: &Forge, args: &[&str]) -> Child {
    let socket = socket().unwrap();
    let ca = forge.ca();
    let mut docker = Command::new("docker");
    docker.args(["--host", &format!("unix://{}", socket.display()), "run", "--rm", "--network", "host", "--read-only"]);
    docker.args(["--tmpfs", "/builds:exec,mode=0755", "--env", "CALLBOARD_WORKER_TOKEN"]);
    for (from, to) in [("/usr", "/usr"), (BINARY, "/callboard-worker"), (ca.to_str().unwrap(), "/ca.pem")] {
        docker.args(["--volume", &format!("{from}:{to}:ro")]);
    }
    docker.args(["--volume", &format!("{}:/var/run/docker.sock", socket.display())]);
    docker.args([HOST_IMAGE, "/callboard-worker", "run", "--api-url", &board.url, "--name", "contained"]);
    docker.args([
        "--builds-root",
        "/builds/root",
        "--isolation",
        "docker",
        "--clone-image",
        HOST_IMAGE,
        "--pull",
        "never",
    ]);
    docker.args(["--egress-allow", &forge.address, "--ca-bundle", "/ca.pem", "--free-mib-min", "1"]);
    docker.args(args).env("CALLBOARD_WORKER_TOKEN", TOKEN).stderr(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_a_container_gives_builds_volumes_and_leaves_none() {
    if socket().is_none() {
        return;
    }
    let (board, forge) = (Board::start_for(HOST_IMAGE).await, Forge::start().await);
    let refused = contained_worker(&board, &forge, &[]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(69), "{said}");
    assert!(said.contains("mend it, or accept it: --accept disk"), "{said}");
    let mut worker = contained_worker(&board, &forge, &["--accept", "disk"]);
    let reaches = format!(
        "curl -sk --noproxy '' -o /dev/null -w 'allowed %{{http_code}}\\n' https://{}/app.git/HEAD",
        forge.address
    );
    let refused = format!("curl -s -o /dev/null -w 'refused %{{http_code}}\\n' --noproxy '' {}", board.url);
    let steps = vec![
        step("write", &["cat hello.txt > made; echo kept > $HOME/kept"]),
        step("read", &["cat made $HOME/kept", &reaches, &refused]),
    ];
    let build = board.offer(job(&forge.url(), steps));
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let stdout = board.log_of(Stream::Stdout);
    for line in ["hello from the repository\n", "kept\n", "allowed 200\n", "refused 403\n"] {
        assert!(stdout.contains(line), "{line:?} is not in {stdout}");
    }
    let filters = format!("%7B%22label%22%3A%5B%22callboard.build%3D{build}%22%5D%7D");
    let is_empty = |found: &serde_json::Value| found.as_array().is_none_or(Vec::is_empty);
    eventually("nothing left", || {
        let containers = ask("GET", &format!("/containers/json?all=1&filters={filters}"));
        let volumes = &ask("GET", &format!("/volumes?filters={filters}"))["Volumes"];
        (is_empty(&containers) && is_empty(volumes)).then_some(())
    });
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(worker.id()).unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}

/// Ends the container that is the network of this worker's build.
fn kill_network(worker: &Worker) {
    let is_network =
        |id: &String| ask("GET", &format!("/containers/{id}/json"))["Args"].to_string().contains("\"network\"");
    let id = containers(&worker.root).into_iter().find(is_network).unwrap();
    ask("POST", &format!("/containers/{id}/kill"));
}

async fn ends_with_its_network(break_it: fn(&Worker), how: &str) {
    let Some((board, forge, worker)) = set_up_in(BackEnd::Docker, &["--kill-grace-ms", "60000"]).await else { return };
    let long = "trap 'echo asked to end; exit' TERM; echo running; while :; do sleep 0.1; done";
    let build = board.offer(job(&forge.url(), vec![step("long", &[long]), step("never", &["true"])]));
    board.until_log("running\n").await;
    break_it(&worker);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Internal)), "{}", board.log());
    assert!(report.error_message.unwrap().contains("network of the build's containers broke"));
    let log = board.log();
    let said = format!("network: the network of this build's containers broke: {how}\n");
    assert!(log.contains(&said) && log.contains("asked to end\n"), "{log}");
    assert!(!log.contains("Step 2/2"), "{log}");
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_network_breaks_is_asked_to_end_and_says_why() {
    ends_with_its_network(kill_network, "it ended with exit code 137").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_networks_guard_is_killed_is_asked_to_end_and_says_why() {
    let kill = |worker: &Worker| proc::signal(worker.guards()[0], Signal::SIGKILL);
    ends_with_its_network(kill, "its guard was killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_takes_too_much_is_ended_as_a_sandbox_is() {
    let args = ["--memory-mib", "64", "--disk-mib", "64"];
    let Some((board, forge, worker)) = set_up_in(BackEnd::Docker, &args).await else { return };
    let fills = "dd if=/dev/zero of=filled bs=1M count=200 2>/dev/null; sleep 100";
    // The file has no name any more, and still fills the disk.
    let hides = "exec 3>filled; rm filled; dd if=/dev/zero bs=1M count=200 >&3 2>/dev/null; sleep 100";
    let hoards = "perl -e '$kept = q(x) x (200 << 20); sleep 100'";
    for (command, reason) in
        [(fills, EndReason::DiskFull), (hides, EndReason::DiskFull), (hoards, EndReason::OutOfMemory)]
    {
        let report = board.report(board.offer(job(&forge.url(), vec![step("greedy", &[command])]))).await;
        assert_eq!(report.end_reason, Some(reason), "{command}: {}", board.log());
    }
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_either_a_worker_goes_without_containers_that_do_not_work_and_says_so() {
    if !BackEnd::Bubblewrap.is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("docker.sock");
    // Whoever listened there is gone.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (board, forge) = (Board::start().await, Forge::start().await);
    let host = format!("unix://{}", socket.display());
    let log = directory.path().join("worker.log");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut run = command(&board, &forge, &directory.path().join("builds"), "run");
    let mut worker = run.args(["--docker-host", &host]).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["true"])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert_eq!(board.heard().claims[0].worker.isolation, ["bubblewrap"]);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("containers are not used: only `image: host` is run"), "{said}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}
