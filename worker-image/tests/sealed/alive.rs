//! A worker goes on calling, or its steps end in time, whatever happens to its host, its board and the way between them.

use crate::board::{job, step};
use crate::fleet::{BINARY, Worker, can_seal, command, eventually, free_port, is_root};
use crate::front::{Front, Mischief};
use crate::skipped::skip;
use crate::{BackEnd, Board, Forge, set_up, set_up_in};
use callboard_worker::proc;
use nix::sys::signal::Signal;
use protocol::{EndReason, Status};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

in_both! {
    heartbeats_go_on_under_twice_the_load_that_the_host_can_bear,
    a_page_with_status_200_a_lost_answer_and_a_restart_take_no_build,
    a_worker_that_was_stopped_past_its_lease_drops_the_build_quietly_and_takes_the_next,
    steps_are_dead_before_the_reaper_may_say_so,
    what_a_killed_worker_left_is_ended_before_the_next_claims,
    a_recovery_ends_what_was_left_twice_and_touches_nothing_of_a_live_worker,
}

const STUBBORN: &str = "trap '' TERM; echo running; while :; do sleep 0.2; done";

/// Heartbeats that come while `during` goes on.
async fn beats_during(board: &Board, during: Duration) -> usize {
    let before = board.heard().heartbeats.len();
    tokio::time::sleep(during).await;
    board.heard().heartbeats.len() - before
}

async fn heartbeats_go_on_under_twice_the_load_that_the_host_can_bear(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let spins = 2 * std::thread::available_parallelism().unwrap().get();
    let spin = format!("for i in $(seq {spins}); do (while :; do :; done) & done; echo running; wait");
    board.offer(job(&forge.url(), vec![step("spin", &[&spin])]));
    board.until_log("running\n").await;
    // One each 200 ms, when all is well.
    assert!(beats_during(&board, Duration::from_secs(4)).await >= 8);
    board.heard().cancel = Some(protocol::CancelReason::User);
    worker.is_tidy();
}

/// A small file system of its own, gone with this: room for the worker's own program, which it copies there, for what it tries at
/// its start, and not for much more.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let size = format!("size={},mode=755", fs::metadata(BINARY).unwrap().len() + (64 << 20));
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).status();
        assert!(mounted.unwrap().success());
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0.path()).status().ok();
    }
}

/// A worker whose builds root is given; killed at the test's end.
struct Placed(Child);

impl Placed {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn no_directories(root: &Path) -> Option<()> {
    let mut names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
    names.all(|name| name.to_string_lossy().starts_with('.')).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_build_that_filled_it_and_no_heartbeat() {
    if !can_seal() || !is_root() {
        return;
    }
    let (board, forge, disk) = (Board::start().await, Forge::start().await, SmallDisk::mount());
    let root = disk.0.path().to_path_buf();
    let _worker = Placed::start(command(&board, &forge, &root, "run"));
    let fills = "echo running; cat /dev/zero > zeros || echo full; sleep 2; exit 7";
    let build = board.offer(job(&forge.url(), vec![step("fill", &[fills])]));
    board.until_log("running\n").await;
    eventually("a full disk", || callboard_worker::poll::free_bytes(&root).ok().filter(|free| *free < 100_000));
    assert!(beats_during(&board, Duration::from_millis(1500)).await >= 2);
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Failed, "{report:?}");
    eventually("an empty builds root", || no_directories(&root));
    let next = board.report(board.offer(job(&forge.url(), vec![step("next", &["true"])]))).await;
    assert_eq!(next.status, Status::Success, "{}", board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_below_its_floor_claims_nothing() {
    if !can_seal() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    board.offer(job(&forge.url(), vec![step("never", &["true"])]));
    let worker = Worker::start(&board, &forge, &["--free-mib-min", "1000000000"]);
    eventually("a word about it", || worker.log().contains("too little free space, nothing is claimed").then_some(()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(board.heard().claims.is_empty());
}

async fn a_page_with_status_200_a_lost_answer_and_a_restart_take_no_build(back_end: BackEnd) {
    if !back_end.is_here() {
        return;
    }
    let (board, forge) = (Board::start_for(back_end.image()).await, Forge::start().await);
    let bad = Arc::new(AtomicBool::new(false));
    let is_bad = Arc::clone(&bad);
    let mut front = Front::start(&board, move |_, number| match (is_bad.load(Relaxed), number % 2) {
        (false, _) => Mischief::None,
        (true, 0) => Mischief::Page,
        (true, _) => Mischief::LoseAnswer,
    })
    .await;
    let worker = Worker::start_for(back_end, &front.of(&board), &forge, &[]);
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 6; echo through"])]));
    board.until_log("running\n").await;
    bad.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    bad.store(false, Relaxed);
    front.stop().await;
    tokio::time::sleep(Duration::from_millis(1000)).await;
    front.again().await;
    let report = board.report(build).await;
    assert_eq!((report.status, report.logs_lost), (Status::Success, false), "{}", worker.log());
    assert!(board.log().contains("through\n"));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_found_is_tried_again_and_holds_no_one_who_wants_to_stop() {
    if !can_seal() {
        return;
    }
    let (mut nowhere, forge) = (Board::start().await, Forge::start().await);
    nowhere.url = "http://board.invalid".into();
    let mut worker = Worker::start(&nowhere, &forge, &[]);
    eventually("two tries", || (worker.log().matches("no answer to a claim").count() >= 2).then_some(()));
    assert!(worker.process.try_wait().unwrap().is_none());
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(0));
}

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_jumps_ends_nothing_and_delays_nothing() {
    if !can_seal() {
        return;
    }
    if !Path::new(FAKETIME).exists() {
        return skip("faketime", "libfaketime is not installed: apt-get install libfaketime");
    }
    let (board, forge, directory) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let (clock, root) = (directory.path().join("clock"), directory.path().join("builds"));
    fs::write(&clock, "+0").unwrap();
    let mut run = command(&board, &forge, &root, "run");
    run.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    // The kernel's other clocks do not jump either.
    run.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let worker = Placed::start(run);
    let mut long = job(&forge.url(), vec![step("long", &["echo running; sleep 6"])]);
    (long.lease_ttl_ms, long.lease_grace_ms) = (3000, 3000);
    let (build, begun) = (board.offer(long), Instant::now());
    board.until_log("running\n").await;
    for jump in ["+600", "-600", "+0"] {
        fs::write(&clock, jump).unwrap();
        assert!(beats_during(&board, Duration::from_millis(1500)).await >= 3, "at {jump}");
    }
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success, "{report:?}");
    assert!(report.ran_ms >= 6000 && begun.elapsed() < Duration::from_secs(40), "{report:?}");
    drop(worker);
}

async fn a_worker_that_was_stopped_past_its_lease_drops_the_build_quietly_and_takes_the_next(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--slots", "1"]).await else { return };
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    (short.lease_ttl_ms, short.lease_grace_ms) = (1500, 1500);
    let build = board.offer(short);
    board.until_log("running\n").await;
    worker.signal(Signal::SIGSTOP);
    eventually("the sandbox's end", || worker.left().is_empty().then_some(()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    board.heard().ended = Some(build);
    let next = board.offer(job(&forge.url(), vec![step("next", &["true"])]));
    worker.signal(Signal::SIGCONT);
    assert_eq!(board.report(next).await.status, Status::Success);
    worker.is_tidy();
    assert!(board.heard().completed.iter().all(|(id, _)| *id == next), "it is quiet about the other");
    assert!(worker.log().contains("build_ended"), "{}", worker.log());
}

async fn steps_are_dead_before_the_reaper_may_say_so(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--fence-margin-ms", "1500"]).await else { return };
    // A twentieth of the rule's numbers: lease 60 s, grace 120 s.
    let (lease, grace) = (Duration::from_millis(3000), Duration::from_millis(6000));
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    short.lease_ttl_ms = u64::try_from(lease.as_millis()).unwrap();
    short.lease_grace_ms = u64::try_from(grace.as_millis()).unwrap();
    board.offer(short);
    board.until_log("running\n").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let last_renewal_at = {
        // From now on no heartbeat is acknowledged: the last one was so before this instant.
        board.heard().away = true;
        Instant::now()
    };
    eventually("the sandbox's end", || worker.is_dead().then_some(()));
    let dead_at = Instant::now();
    assert!(dead_at < last_renewal_at + lease + grace, "{:?} late", dead_at - (last_renewal_at + lease + grace));
    assert!(dead_at > last_renewal_at + lease, "a lapsed lease alone ends nothing");
}

async fn what_a_killed_worker_left_is_ended_before_the_next_claims(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &["--kill-grace-ms", "60000", "--slots", "1"]).await
    else {
        return;
    };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    let left = worker.left();
    assert!(!left.is_empty());
    let claims = board.heard().claims.len();
    let worker = worker.again(&board, &forge);
    board.until("a claim of the next", |heard| (heard.claims.len() > claims).then_some(())).await;
    // Those without arguments are dead, and wait for whoever adopted them to notice.
    let lives = |process: &proc::Process| left.contains(&process.pid) && !process.args.is_empty();
    let alive: Vec<_> = proc::all().into_iter().filter(lives).collect();
    assert!(alive.is_empty(), "{alive:?}");
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn a_recovery_ends_what_was_left_twice_and_touches_nothing_of_a_live_worker(back_end: BackEnd) {
    let Some((board, forge, mut dead)) = set_up_in(back_end, &["--kill-grace-ms", "60000"]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    dead.process.kill().unwrap();
    dead.process.wait().unwrap();
    board.heard().chunks.clear();

    let live = Worker::start_for(back_end, &board, &forge, &[]);
    let going = board.offer(job(&forge.url(), vec![step("long", &["echo going; sleep 8"])]));
    board.until_log("going\n").await;
    let of_live = live.left();
    for worker in [&dead, &dead, &live] {
        let output = worker.recovery(&board, &forge).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(dead.all_left().is_empty() && dead.sites().is_empty());
    let reported: Vec<_> = board.heard().completed.iter().map(|(id, report)| (*id, report.end_reason)).collect();
    assert_eq!(reported, [(build, Some(EndReason::Recovery))]);
    assert_eq!(live.left(), of_live);
    assert_eq!(board.report(going).await.status, Status::Success);
    live.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_drains_is_well() {
    let address = format!("127.0.0.1:{}", free_port());
    let Some((board, forge, worker)) = set_up(&["--metrics-addr", &address]).await else { return };
    board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 3"])]));
    board.until_log("running\n").await;
    worker.signal(Signal::SIGTERM);
    let health = Command::new(BINARY).args(["health", "--metrics-addr", &address]).output().unwrap();
    assert!(health.status.success(), "{health:?}");
    worker.signal(Signal::SIGTERM);
}
