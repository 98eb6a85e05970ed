//! Every byte that a step wrote is in the log, in order and once, whatever the bytes and whatever the board does.

use crate::board::{job, step};
use crate::fleet::{Worker, can_seal, eventually};
use crate::front::{Front, Mischief};
use crate::{Board, Forge, set_up};
use callboard_worker::clock::Boot;
use protocol::log::Stream;
use protocol::worker::{Complete, Secret};
use protocol::{EndReason, Status};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// So much may a worker that holds one build take, besides its own code.
const MEMORY_MAX_KIB: u64 = 64 * 1024;

/// What a stream of all builds holds.
fn bytes_of(board: &Board, stream: Stream) -> Vec<u8> {
    let heard = board.heard();
    let chunks = heard.chunks.iter().filter(|chunk| chunk.stream == stream);
    chunks.flat_map(|chunk| chunk.bytes().unwrap()).collect()
}

async fn run(board: &Board, forge: &Forge, command: &str) -> Complete {
    board.report(board.offer(job(&forge.url(), vec![step("write", &[command])]))).await
}

/// The most anonymous memory that a process was seen to have, in KiB.
struct Watched {
    most: Arc<AtomicU64>,
    enough: Arc<AtomicBool>,
}

impl Watched {
    fn begin(worker: &Worker) -> Self {
        let (path, watched) =
            (format!("/proc/{}/status", worker.pid()), Self { most: Arc::default(), enough: Arc::default() });
        let (most, enough) = (Arc::clone(&watched.most), Arc::clone(&watched.enough));
        std::thread::spawn(move || {
            while !enough.load(Relaxed) {
                let status = fs::read_to_string(&path).unwrap_or_default();
                let now = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
                let now = now.and_then(|now| now.trim().trim_end_matches(" kB").parse().ok());
                most.fetch_max(now.unwrap_or(0), Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        watched
    }

    fn is_bounded(&self) {
        let most = self.most.load(Relaxed);
        println!("at most {most} KiB");
        assert!((1..MEMORY_MAX_KIB).contains(&most), "{most} KiB");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.enough.store(true, Relaxed);
    }
}

/// A letter of each length, so that a cut falls on each of its offsets, and what terminals and files have besides.
const ODD: &str = "aé€𝄞 \u{0}\r\n50%\r100%\rdone\n\tz\r\n\u{feff}\u{202e}";

#[tokio::test(flavor = "multi_thread")]
async fn characters_that_are_split_anywhere_and_odd_bytes_arrive_as_they_were_written() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let hex = hex::encode(ODD);
    let slowly = format!(
        "perl -e '$| = 1; for my $to (\"stdout\", \"stderr\") {{ my $f = $to eq \"stdout\" ? *STDOUT : *STDERR; \
         for (unpack(q(C*), pack(q(H*), q({hex}))), 0xff, 0xc3) {{ syswrite $f, chr; select undef, undef, undef, 0.02 }} }}'"
    );
    assert_eq!(run(&board, &forge, &slowly).await.status, Status::Success, "{}", board.log());
    let expected = [ODD.as_bytes(), b"\xff\xc3"].concat();
    assert_eq!(bytes_of(&board, Stream::Stdout), expected);
    assert_eq!(bytes_of(&board, Stream::Stderr), expected);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_thousand_lines_at_once_arrive_in_order_and_memory_stays_bounded() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let watched = Watched::begin(&worker);
    let report = run(&board, &forge, "seq 200000; printf 'and no end'").await;
    assert_eq!((report.status, report.logs_lost), (Status::Success, false));
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect::<String>() + "and no end";
    assert!(bytes_of(&board, Stream::Stdout) == expected.as_bytes());
    watched.is_bounded();
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_both_streams_with_secrets_to_look_for_stays_within_memory() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let watched = Watched::begin(&worker);
    let noise = "(head -c 4000000 /dev/urandom & head -c 4000000 /dev/urandom | base64 >&2 & wait)";
    let mut noisy = job(&forge.url(), vec![step("noise", &[noise])]);
    for number in 0..20 {
        noisy.secrets.insert(format!("KEY{number}"), Secret(format!("{number}-secret-of-some-length\n").repeat(40)));
    }
    let report = board.report(board.offer(noisy)).await;
    assert_eq!((report.status, report.logs_lost), (Status::Success, false), "{report:?}");
    watched.is_bounded();
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_the_board_takes_none_of_stays_within_memory_and_the_loss_is_named() {
    if !can_seal() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let front = Front::start(&board, move |path, _| {
        if path.ends_with("/logs") && is_away.load(Relaxed) { Mischief::Page } else { Mischief::None }
    })
    .await;
    let worker = Worker::start(&front.of(&board), &forge, &[]);
    let watched = Watched::begin(&worker);
    let floods = step("flood", &["yes 0123456789abcdef | head -c 120000000; echo flooded > /workspace/done; sleep 1"]);
    let build = board.offer(job(&forge.url(), vec![floods]));
    let done = || {
        fs::read_dir(&worker.root)
            .into_iter()
            .flatten()
            .any(|site| site.unwrap().path().join("workspace/done").exists())
    };
    eventually("the end of the flood", || done().then_some(()));
    away.store(false, Relaxed);
    let report = board.report(build).await;
    assert_eq!((report.status, report.logs_lost), (Status::Success, false));
    let log = board.log_of(Stream::System);
    assert!(log.contains(" bytes dropped while the board could not be reached]\n"), "{log}");
    watched.is_bounded();
}

/// Numbers that look random and are not.
fn dice(seed: u64, number: u64) -> u64 {
    let mixed = (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_answers_are_lost_or_calls_repeated_the_log_is_whole_and_the_report_one() {
    if !can_seal() {
        return;
    }
    for seed in 1..=3 {
        let (board, forge) = (Board::start().await, Forge::start().await);
        let front = Front::start(&board, move |_, number| match dice(seed, number) % 10 {
            0 | 1 => Mischief::Page,
            2 | 3 => Mischief::LoseAnswer,
            4 | 5 => Mischief::Twice,
            _ => Mischief::None,
        })
        .await;
        let worker = Worker::start(&front.of(&board), &forge, &[]);
        let counts = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo out-$i; echo err-$i >&2; sleep 0.01; done";
        let report = run(&board, &forge, counts).await;
        assert_eq!((report.status, report.logs_lost), (Status::Success, false), "seed {seed}: {}", board.log());
        worker.is_tidy();
        let lines = |of: &str| (1..=400).map(|number| format!("{of}-{number}\n")).collect::<String>();
        assert_eq!(String::from_utf8(bytes_of(&board, Stream::Stdout)).unwrap(), lines("out"), "seed {seed}");
        assert_eq!(String::from_utf8(bytes_of(&board, Stream::Stderr)).unwrap(), lines("err"), "seed {seed}");
        assert_eq!(front.changed(), [] as [u64; 0], "seed {seed}: a number means one content");
        let heard = board.heard();
        assert!(heard.completed.iter().all(|(_, again)| *again == report), "seed {seed}: {:?}", heard.completed);
        assert_eq!(heard.given.len(), 1, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_never_answered_delays_neither_heartbeats_nor_the_report_for_ever() {
    if !can_seal() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let hangs = |path: &str, _| if path.ends_with("/logs") { Mischief::Hang } else { Mischief::None };
    let front = Front::start(&board, hangs).await;
    let worker = Worker::start(&front.of(&board), &forge, &["--logs-hold-ms", "1500"]);
    let begun = Boot::now();
    let report = run(&board, &forge, "echo unheard; sleep 2; exit 3").await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::StepFailed)));
    assert!(report.logs_lost && report.last_seq > 0, "{report:?}");
    assert!(Boot::now().since(begun) < Duration::from_secs(20));
    assert!(board.heard().heartbeats.len() >= 8, "{:?}", board.heard().heartbeats);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_are_cut_anywhere_nested_or_short_are_masked_and_the_log_is_legible() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let commands = [
        "printf '%s' \"$LONG\" | fold -w 1 | while read -r c; do printf '%s' \"$c\"; sleep 0.02; done; echo",
        "printf hunter >&2; sleep 0.5; printf 'hunter'; sleep 0.5; echo 2-is-the-longer; echo 2-is-the-longer >&2",
        "printf %s hunter2-is; sleep 0.5; printf %s -the-longer >&2; echo; echo >&2",
        "echo short: $SHORT; echo $PREFIX and $LONG",
        "printf %s \"$LONG\" | base64; printf '%s' \"$URL\" | perl -pe 's/([^a-z0-9])/sprintf(\"%%%02X\", ord $1)/ge'; echo",
        "echo a plain line with x and y",
    ];
    let mut writing = job(&forge.url(), vec![step("write", &commands)]);
    for (name, value) in
        [("LONG", "hunter2-is-the-longer"), ("PREFIX", "hunter2"), ("SHORT", "x"), ("URL", "pass/word with spaces")]
    {
        writing.secrets.insert(name.into(), Secret(value.into()));
    }
    let report = board.report(board.offer(writing)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    // The commands that are shown hold no whole value but one, which is masked as well.
    for value in ["hunter2", "pass%2Fword", "aHVudGVyMi1pcy"] {
        assert!(!log.contains(value), "{value} is in {log}");
    }
    assert!(log.contains("short: x\n") && log.contains("a plain line with x and y\n"), "{log}");
    assert!(log.contains("*** and ***\n"), "{log}");
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_dumped_is_masked_in_every_column() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let dumps = [
        "od -c",
        "od -x",
        "od",
        "od -b",
        "od -An -c",
        "od -t x1",
        "od -t x1z",
        "base32",
        "xxd",
        "hexdump -C",
        "hexdump",
    ];
    let dump = |tool: &str| {
        let name = tool.split(' ').next().unwrap();
        format!("command -v {name} >/dev/null || exit 0; printf 'xy%s' \"$KEY\" | {tool} && echo {name} is through")
    };
    let commands: Vec<String> = dumps.iter().map(|tool| format!("({})", dump(tool))).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let mut writing = job(&forge.url(), vec![step("write", &commands)]);
    writing.secrets.insert("KEY".into(), Secret("kqkqkqkq-kqkqkqkq-kqkqkqkq-kqkqkqkq-kqkqkqkq".into()));
    let report = board.report(board.offer(writing)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    // The letters in each way to write them; `xy` before them takes the first column of two.
    for shown in ["kqkq", "k   q", "716b", "6b71", "6b 71", "070553", "153 161", "NNYW"] {
        assert!(!log.contains(shown), "{shown} is in {log}");
    }
    assert!(log.contains("od is through\n") && log.contains("base32 is through\n"), "{log}");
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_cap_the_outcome_is_what_it_would_be() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    board.heard().log_cap_chunks = Some(20);
    let report = run(&board, &forge, "for i in $(seq 30); do echo $i; sleep 0.1; done; seq 100000; exit 4").await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::StepFailed)));
    assert_eq!(report.steps[0].exit_code, Some(4));
    assert!(!report.logs_lost, "{report:?}");
    worker.is_tidy();
}
