//! What a worker adds to a step, beside bubblewrap and `docker run` by hand in the same run, and how long it is from a claim to the log's first
//! line: `./tests/run bench worker`.
//!
//! Asserts no time. All is real but the board, which costs nothing.

#![allow(clippy::unwrap_used, reason = "a measurement that can not go on fails")]
#![allow(clippy::result_large_err, reason = "an answer is an answer, whichever way")]
#![allow(dead_code, unused_macros, reason = "the tests need more of it")]

#[path = "../tests/sealed/back_ends.rs"]
mod back_ends;
#[path = "../tests/sealed/board.rs"]
mod board;
#[path = "../tests/sealed/fleet.rs"]
mod fleet;
#[path = "../tests/sealed/forge.rs"]
mod forge;
#[path = "../../tests/skipped.rs"]
mod skipped;

use back_ends::{BackEnd, HOST_IMAGE, socket};
use board::{Board, job, step};
use fleet::Worker;
use forge::Forge;
use protocol::Status;
use protocol::log::Stream;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often each is done.
const ROUNDS: usize = 30;
/// The same in containers, which take longer.
const ROUNDS_OF_CONTAINERS: usize = 10;
const GOAL_BESIDE_DOCKER: f64 = 1.15;
const GOAL_OVER_BUBBLEWRAP_MS: f64 = 15.0;
const GOAL_FIRST_LINE_MS: f64 = 150.0;

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    if !fleet::can_seal() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let worker = Worker::start(&board, &forge, &["--slots", "1"]);
    let steps_ms = steps(&board, &forge, ROUNDS).await;
    let by_hand_ms = median((0..ROUNDS).map(|_| by_hand()));
    let mut first = Vec::new();
    for _ in 0..10 {
        first.push(first_line(&board, &forge).await);
    }
    worker.is_tidy();
    let contained = contained(&forge).await;
    let (first_ms, of_step_ms) = (median(first.iter().map(|times| times.0)), median(first.iter().map(|times| times.1)));
    let over = steps_ms - by_hand_ms;
    println!("| what | ms | beside | goal |\n| --- | --- | --- | --- |");
    println!("| `true` in bubblewrap by hand | {by_hand_ms:.1} | 1.00 | |");
    let ratio = steps_ms / by_hand_ms;
    println!("| a no-op step | {steps_ms:.1} | {ratio:.2}, {over:+.1} ms | at most +{GOAL_OVER_BUBBLEWRAP_MS:.0} ms |");
    if let Some((steps_ms, by_hand_ms)) = contained {
        println!("| `docker run --rm` by hand | {by_hand_ms:.1} | 1.00 | |");
        let ratio = steps_ms / by_hand_ms;
        println!("| a no-op step in a container | {steps_ms:.1} | {ratio:.2} | at most {GOAL_BESIDE_DOCKER} |");
    }
    println!("| claim to the log's first line | {first_ms:.1} | | under {GOAL_FIRST_LINE_MS:.0} ms |");
    println!(
        "| claim to the first step's line, without the clone | {of_step_ms:.1} | | under {GOAL_FIRST_LINE_MS:.0} ms |"
    );
}

/// A no-op step in a container, and one by hand; none without a daemon of the tests' own.
async fn contained(forge: &Forge) -> Option<(f64, f64)> {
    let daemon = format!("unix://{}", socket()?.display());
    let board = Board::start_for(HOST_IMAGE).await;
    let worker = Worker::start_for(BackEnd::Docker, &board, forge, &["--slots", "1"]);
    let steps_ms = steps(&board, forge, ROUNDS_OF_CONTAINERS).await;
    worker.is_tidy();
    let by_hand_ms = median((0..ROUNDS_OF_CONTAINERS).map(|_| docker_by_hand(&daemon)));
    Some((steps_ms, by_hand_ms))
}

fn docker_by_hand(daemon: &str) -> f64 {
    let begun = Instant::now();
    let mut docker = Command::new("docker");
    docker.args(["--host", daemon, "run", "--rm", "--network", "none", HOST_IMAGE, "/bin/sh", "-c", "true"]);
    assert!(docker.status().unwrap().success());
    begun.elapsed().as_secs_f64() * 1000.0
}

/// One no-op step, as the difference that so many more of them make.
async fn steps(board: &Board, forge: &Forge, rounds: usize) -> f64 {
    let mut took = Vec::new();
    for count in [1, 1 + rounds] {
        let steps = (0..count).map(|number| step(&format!("s{number}"), &["true"])).collect();
        let report = board.report(board.offer(job(&forge.url(), steps))).await;
        assert_eq!(report.status, Status::Success, "{}", board.log());
        let sum: u64 = report.steps.iter().map(|step| step.duration_ms).sum();
        took.push(Duration::from_millis(sum).as_secs_f64() * 1000.0);
        board.heard().chunks.clear();
    }
    (took[1] - took[0]) / f64::from(u32::try_from(rounds).unwrap())
}

fn by_hand() -> f64 {
    let begun = Instant::now();
    let mut bubblewrap = Command::new("bwrap");
    bubblewrap.args(["--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]);
    for path in ["/usr", "/bin", "/lib", "/lib64", "/etc"].iter().filter(|path| std::path::Path::new(path).exists()) {
        bubblewrap.args(["--ro-bind", path, path]);
    }
    assert!(bubblewrap.args(["/bin/sh", "-c", "true"]).status().unwrap().success());
    begun.elapsed().as_secs_f64() * 1000.0
}

/// From the claim to the first line that the board has, and to the first of the step, less the clone.
async fn first_line(board: &Board, forge: &Forge) -> (f64, f64) {
    board.heard().chunks.clear();
    let mut usual = job(&forge.url(), vec![step("say", &["echo said"])]);
    usual.log.interval_ms = 1000;
    let build = board.offer(usual);
    let claimed_at = since(|| board.heard().claimed_at.get(&build).copied()).await;
    let first = since(|| (!board.heard().chunks.is_empty()).then(Instant::now)).await;
    board.report(build).await;
    let of_step =
        board.heard().chunks.iter().find(|chunk| chunk.stream == Stream::Stdout).map_or(0, |chunk| chunk.at_ms);
    let clone = clone_ms(&board.log());
    let of_step = Duration::from_millis(of_step).as_secs_f64() * 1000.0;
    ((first - claimed_at).as_secs_f64() * 1000.0, of_step - clone)
}

async fn since(mut found: impl FnMut() -> Option<Instant>) -> Instant {
    loop {
        if let Some(at) = found() {
            return at;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What the log says that the clone took.
fn clone_ms(log: &str) -> f64 {
    let line = log.lines().find(|line| line.starts_with("Checked out ")).unwrap();
    line.rsplit(' ').nth(1).unwrap().parse::<f64>().unwrap() * 1000.0
}

fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
