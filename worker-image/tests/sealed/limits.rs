//! What a step may take: too much is its own trouble, and nobody else's.

use crate::board::{job, step};
use crate::fleet::eventually;
use crate::skipped::skip;
use crate::{BackEnd, Board, Forge, Worker, set_up_in};
use protocol::log::Stream;
use protocol::{EndReason, Status};
use std::fs;
use uuid::Uuid;

in_both! {
    a_step_that_takes_too_much_memory_is_out_of_memory_and_its_neighbour_goes_on,
    what_a_step_puts_into_memory_files_counts_as_memory,
    a_step_that_copes_with_the_end_of_a_child_goes_on,
    a_fork_beyond_the_limit_fails_and_the_neighbour_goes_on,
    a_real_fork_bomb_is_ended_at_its_timeout_and_the_neighbour_goes_on,
    a_step_gets_no_more_cpu_than_its_limit,
    a_build_that_fills_the_disk_is_ended_as_such_and_its_neighbour_goes_on,
    a_build_may_hold_as_much_as_its_limit,
    what_a_build_hides_in_a_deleted_file_counts,
}

/// As `set_up`, where a worker can limit its builds.
async fn set_up_limited(back_end: BackEnd, args: &[&str]) -> Option<(Board, Forge, Worker)> {
    let (board, forge, worker) = set_up_in(back_end, args).await?;
    if back_end == BackEnd::Docker {
        return Some((board, forge, worker));
    }
    board.until("a first claim", |heard| (!heard.claims.is_empty()).then_some(())).await;
    if !worker.groups().is_empty() {
        return Some((board, forge, worker));
    }
    skip("cgroups", "this user can make no control groups here");
    None
}

/// A build that counts for a while, and the number of heartbeats before it.
fn neighbour(board: &Board, forge: &Forge) -> (Uuid, usize) {
    let counts = step("count", &["for i in 1 2 3 4 5 6 7 8; do echo at $i; sleep 0.25; done"]);
    (board.offer(job(&forge.url(), vec![counts])), board.heard().heartbeats.len())
}

/// The neighbour, its heartbeats and the worker have gone on.
async fn goes_on(board: &Board, (build, beats): (Uuid, usize)) {
    let report = board.report(build).await;
    assert_eq!((report.status, report.steps[0].exit_code), (Status::Success, Some(0)), "{}", board.log());
    assert!(board.heard().heartbeats.len() > beats + 5);
}

/// Fills memory, in a child of its own, and says what became of it.
const HOG: &str = "perl -e '$x = q(x) x (200 << 20); print qq(has it all\n)'";

async fn a_step_that_takes_too_much_memory_is_out_of_memory_and_its_neighbour_goes_on(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_limited(back_end, &["--memory-mib", "64"]).await else { return };
    let neighbour = neighbour(&board, &forge);
    let hog = board.offer(job(&forge.url(), vec![step("hog", &[HOG]), step("never", &["true"])]));
    let report = board.report(hog).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::OutOfMemory)), "{}", board.log());
    assert_eq!(report.steps[0].exit_code, Some(137));
    goes_on(&board, neighbour).await;
    assert!(!board.log_of(Stream::Stdout).contains("has it all\n"));
    worker.is_tidy();
}

async fn what_a_step_puts_into_memory_files_counts_as_memory(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_limited(back_end, &["--memory-mib", "64"]).await else { return };
    let fills = step("fill", &["head -c 200000000 /dev/zero >/dev/shm/file"]);
    let report = board.report(board.offer(job(&forge.url(), vec![fills]))).await;
    assert_eq!(report.end_reason, Some(EndReason::OutOfMemory), "{}", board.log());
    worker.is_tidy();
}

async fn a_step_that_copes_with_the_end_of_a_child_goes_on(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_limited(back_end, &["--memory-mib", "64"]).await else { return };
    let copes = step("cope", &[&format!("{HOG} || echo coped with $?")]);
    let report = board.report(board.offer(job(&forge.url(), vec![copes]))).await;
    assert_eq!((report.status, report.end_reason), (Status::Success, None), "{}", board.log());
    assert!(board.log().contains("coped with 137\n"), "{}", board.log());
}

/// Starts processes until it can't, at most twice as many as it may; its exit code says how many there were.
const BOMB: &str = "perl -MErrno -e 'for (1..128) { my $pid = fork; exit($!{EAGAIN} ? $_ : 1) if !defined $pid; \
                    if (!$pid) { sleep 100; exit } }'";

async fn a_fork_beyond_the_limit_fails_and_the_neighbour_goes_on(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_limited(back_end, &["--processes", "64"]).await else { return };
    let neighbour = neighbour(&board, &forge);
    let report = board.report(board.offer(job(&forge.url(), vec![step("bomb", &[BOMB])]))).await;
    assert!((50..=64).contains(&report.steps[0].exit_code.unwrap()), "{report:?}");
    goes_on(&board, neighbour).await;
    worker.is_tidy();
}

async fn a_real_fork_bomb_is_ended_at_its_timeout_and_the_neighbour_goes_on(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_limited(back_end, &["--processes", "64", "--cpu-millis", "500"]).await
    else {
        return;
    };
    let neighbour = neighbour(&board, &forge);
    // The shell itself forks once, before there is a bomb: afterwards it might be the one that can't.
    let mut bomb =
        step("bomb", &["bomb() { bomb | bomb & }; trap '' TERM; (bomb) 2>/dev/null || true; exec sleep 100"]);
    bomb.timeout_seconds = Some(2);
    let report = board.report(board.offer(job(&forge.url(), vec![bomb]))).await;
    assert_eq!(report.end_reason, Some(EndReason::StepTimeout), "{}", board.log());
    goes_on(&board, neighbour).await;
    worker.is_tidy();
}

/// Two processes that compute for two seconds; says how much CPU they had, in thousandths of one.
const SPIN: &str = "perl -MPOSIX=times -e 'my ($begun) = times; my $child = fork; 1 while (times)[0] < $begun + 200; \
                    if ($child) { wait; my ($now, @t) = times; printf qq(had %d\n), 1000 * ($t[0] + $t[1] + $t[2] + $t[3]) / ($now - $begun) }'";

async fn a_step_gets_no_more_cpu_than_its_limit(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_limited(back_end, &["--cpu-millis", "200"]).await else { return };
    let report = board.report(board.offer(job(&forge.url(), vec![step("spin", &[SPIN])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log_of(Stream::Stdout);
    let had: u32 = log.lines().find_map(|line| line.strip_prefix("had ")).expect(&log).parse().unwrap();
    assert!((1..300).contains(&had), "{had} of 200");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_groups_of_a_worker_that_was_killed_are_ended_by_the_next_and_no_others() {
    let Some((board, forge, mut worker)) = set_up_limited(BackEnd::Bubblewrap, &[]).await else { return };
    let other = Worker::start(&board, &forge, &[]);
    let others = eventually("its groups", || Some(other.groups()).filter(|groups| !groups.is_empty()));
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    let (mine, theirs) = if worker.sites().is_empty() { (other, worker) } else { (worker, other) };
    worker = mine;
    // So that its guards are killed before they see that it is gone.
    for pid in worker.left() {
        callboard_worker::proc::signal(pid, nix::sys::signal::Signal::SIGSTOP);
    }
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    for pid in worker.all_left() {
        callboard_worker::proc::signal(pid, nix::sys::signal::Signal::SIGKILL);
    }
    assert!(!worker.tasks().is_empty(), "nobody was left to end its groups");
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
    assert!(theirs.groups().iter().chain(&others).any(|group| fs::exists(group).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_groups_of_a_worker_whose_builds_root_is_gone_are_removed_by_any_other() {
    let Some((board, forge, mut dead)) = set_up_limited(BackEnd::Bubblewrap, &[]).await else { return };
    board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    dead.kill_with_guards();
    eventually("the end of all processes", || dead.all_left().is_empty().then_some(()));
    let (groups, tasks) = (dead.groups(), dead.tasks());
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task.exists()), "nobody was left to end them");
    fs::remove_dir_all(&dead.root).unwrap();
    let other = Worker::start(&board, &forge, &[]);
    eventually("the end of the groups", || groups.iter().all(|group| !group.exists()).then_some(()));
    eventually("its own groups", || (!other.groups().is_empty()).then_some(()));
}

/// Writes 200 MB in two directories, and more as long as it is let.
const FILLS: &str = "mkdir -p deep/er; head -c 100000000 /dev/zero >deep/er/file; while :; do head -c 100000000 /dev/zero >$HOME/file; sleep 1; done";

async fn a_build_that_fills_the_disk_is_ended_as_such_and_its_neighbour_goes_on(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--disk-mib", "150"]).await else { return };
    let neighbour = neighbour(&board, &forge);
    let report = board.report(board.offer(job(&forge.url(), vec![step("fill", &[FILLS])]))).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::DiskFull)), "{}", board.log());
    assert!(report.error_message.unwrap().contains("disk"));
    goes_on(&board, neighbour).await;
    worker.is_tidy();
}

async fn a_build_may_hold_as_much_as_its_limit(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &["--disk-mib", "150"]).await else { return };
    let holds = step("hold", &["head -c 100000000 /dev/zero >file", "sleep 2"]);
    let report = board.report(board.offer(job(&forge.url(), vec![holds]))).await;
    assert_eq!((report.status, report.end_reason), (Status::Success, None), "{}", board.log());
}

async fn what_a_build_hides_in_a_deleted_file_counts(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_limited(back_end, &["--disk-mib", "50"]).await else { return };
    let hides = step("hide", &["exec 3>file; rm file; head -c 100000000 /dev/zero >&3; sleep 60"]);
    let report = board.report(board.offer(job(&forge.url(), vec![hides]))).await;
    assert_eq!(report.end_reason, Some(EndReason::DiskFull), "{}", board.log());
    worker.is_tidy();
}

/// Fills what there is and keeps it for a while.
const FILLS_ALL: &str = "head -c 1000000000 /dev/zero >file || echo full; sleep 3";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_neither_a_neighbour_nor_heartbeats_nor_the_worker() {
    if !crate::fleet::can_seal() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let Some(worker) = Worker::start_on(200, &board, &forge) else { return };
    let neighbour = neighbour(&board, &forge);
    board.until_log("at 1\n").await;
    let report = board.report(board.offer(job(&forge.url(), vec![step("fill", &[FILLS_ALL])]))).await;
    assert_eq!((report.status, report.steps[0].exit_code), (Status::Success, Some(0)), "{}", board.log());
    goes_on(&board, neighbour).await;
    let next = board.report(board.offer(job(&forge.url(), vec![step("next", &["true"])]))).await;
    assert_eq!(next.status, Status::Success, "{}", board.log());
    worker.is_tidy();
}
