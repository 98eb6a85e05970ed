//! A task's containers and volumes by Docker's daemon, all of the image of worker-image/Dockerfile: `./tests/image` builds it.

use crate::board::{Board, TOKEN, job, step};
use crate::forge::Forge;
use crate::skipped::skip;
use protocol::log::Stream;
use protocol::runner::Outcome;
use std::fs;
use std::process::{Command, Output};

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
}

fn docker(args: &[&str]) -> Output {
    let host = format!("unix://{}", variable("CALLBOARD_TEST_DOCKER").unwrap());
    Command::new("docker").args(["--host", &host]).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)).trim().to_owned()
}

/// What every container of a task is held to.
const SEALED: [&str; 7] = [
    "--network=host",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--user",
    "10001:10001",
    "--detach",
];

/// The containers of one task and its volumes; gone with this.
struct Task {
    image: String,
    name: String,
    containers: Vec<String>,
}

impl Task {
    fn volume(&self, of: &str, at: &str) -> String {
        format!("--volume={}-{of}:{at}", self.name)
    }

    fn run(&mut self, args: &[String], image_args: &[&str]) {
        let args: Vec<&str> = ["run"].into_iter().chain(SEALED).chain(args.iter().map(String::as_str)).collect();
        let output = docker(&[&args, &[self.image.as_str()][..], image_args].concat());
        assert!(output.status.success(), "{}", said(&output));
        self.containers.push(said(&output));
    }

    fn codes(&self) -> Vec<String> {
        self.containers.iter().map(|container| said(&docker(&["wait", container]))).collect()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        for container in &self.containers {
            if std::thread::panicking() {
                println!("{container} said:\n{}", said(&docker(&["logs", container])));
            }
            docker(&["rm", "--force", "--volumes", container]);
        }
        let volumes = docker(&["volume", "ls", "--quiet", "--filter", &format!("name={}-", self.name)]);
        said(&volumes).lines().for_each(|volume| drop(docker(&["volume", "rm", "--force", volume])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_the_image_needs_no_right_but_to_its_volumes() {
    let (Some(image), Some(_)) = (variable("CALLBOARD_TEST_IMAGE"), variable("CALLBOARD_TEST_DOCKER")) else {
        return skip("image", "run the tests by ./tests/run, or by ./tests/docker ./tests/image");
    };
    let forge = Forge::start().await;
    let look = [
        "id -u",
        "(: >/etc/x) 2>/dev/null || echo sealed",
        ": >$HOME/of-one; : >/tmp/of-one",
        "ls -A",
        "cat hello.txt",
    ];
    let find = ["ls $HOME", "ls /tmp", "cat /proc/1/environ 2>/dev/null || echo closed", "ls /run/callboard"];
    let board = Board::start(job(&forge.url(), vec![step("looks", &look), step("finds", &find)])).await;
    let mut task = Task { image, name: format!("callboard-test-{}", board.build()), containers: Vec::new() };
    let told = [
        ("URL", board.url.clone()),
        ("BUILD", board.build().to_string()),
        ("LOG_TOKEN", TOKEN.into()),
        ("ROOMS", "2".into()),
        ("CA_PEM", fs::read_to_string(forge.ca()).unwrap()),
        ("LEASE_TTL_MS", "60000".into()),
        ("LEASE_GRACE_MS", "120000".into()),
        ("HEARTBEAT_EVERY_MS", "30000".into()),
        ("KILL_GRACE_MS", "10000".into()),
    ];
    let variables = told.map(|(name, value)| format!("--env=CALLBOARD_{name}={value}"));
    let shared = [task.volume("workspace", "/workspace"), task.volume("home", "/home/build")];
    let own = (0..=2).map(|number| task.volume(&format!("tmp-{number}"), &format!("/rooms/{number}")));
    let runner =
        [&variables[..], &shared, &own.collect::<Vec<_>>(), &[task.volume("control", "/run/callboard")]].concat();
    task.run(&runner, &["runner"]);
    for number in ["0", "1", "2"] {
        let own = [
            task.volume("control", "/run/callboard:ro"),
            task.volume(&format!("tmp-{number}"), "/tmp"),
            "--entrypoint=/run/callboard/bin/shim".into(),
        ];
        task.run(&[&shared[..], &own].concat(), &[number]);
    }
    assert_eq!(task.codes(), ["0"; 4], "{}", board.log());
    assert_eq!(board.heard().reports[0].outcome, Outcome::Success, "{}", board.log());
    let expected = "10001\nsealed\n.git\nhello.txt\nhello from the repository\nof-one\nclosed\nbin\nbuild\n";
    assert_eq!(board.log_of(Stream::Stdout), expected, "{}", board.log());
}
