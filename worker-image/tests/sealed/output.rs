//! What a step writes, on its way to the board.

use crate::board::{job, step};
use crate::{BackEnd, set_up, set_up_in};
use protocol::Status;
use protocol::log::Stream;
use protocol::worker::Secret;

in_both! {
    secrets_are_masked_also_in_pieces_by_lines_and_encoded,
    secrets_are_masked_also_where_an_encoding_is_wrapped,
    a_secret_that_is_too_short_to_be_masked_is_named,
    commands_and_the_workers_own_words_begin_lines,
    an_outage_of_the_board_leaves_no_hole_in_the_log,
    a_line_of_fifty_megabytes_is_cut_and_memory_stays_bounded,
    bytes_that_are_no_text_arrive_as_they_are,
}

async fn commands_and_the_workers_own_words_begin_lines(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let steps =
        vec![step("one", &["printf 'no newline'", "echo a\n", "printf b"]), step("two", &["sleep 0.5; printf c >&2"])];
    let report = board.report(board.offer(job(&forge.url(), steps))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    let (_, log) = log.split_once("Step 1/2: one\n").expect("a log of the step");
    let lines: Vec<_> = log.lines().map(|line| line.split(" after ").next().unwrap_or("")).collect();
    let one = ["$ printf 'no newline'", "no newline", "$ echo a", "a", "$ printf b", "b", "exit code 0"];
    let two = ["Step 2/2: two", "$ sleep 0.5; printf c >&2", "c", "exit code 0"];
    assert_eq!(lines, [&one[..], &two[..]].concat());
}

fn sorted(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_stands_between_what_was_written_before_and_after_it() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let numbers: Vec<String> = (1..=30).map(|number| format!("printf out{number}; printf err{number} >&2")).collect();
    let mut commands: Vec<&str> = numbers.iter().map(String::as_str).collect();
    commands.extend(["exec >/dev/null", "echo hidden; echo seen >&2"]);
    let mut writing = job(&forge.url(), vec![step("write", &commands)]);
    // So that parts are held back.
    writing.secrets.insert("KEY".into(), Secret("err1-and-what-follows".into()));
    let report = board.report(board.offer(writing)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    let (_, log) = log.split_once("Step 1/1: write\n").unwrap();
    let mut parts = log.split("$ ").skip(1);
    for (number, command) in (1..=30).zip(&numbers) {
        let part = parts.next().and_then(|part| part.strip_prefix(command.as_str())).expect(log);
        // In what order the two streams are read does not matter here.
        assert_eq!(sorted(part), sorted(&format!("\nout{number}err{number}\n")), "{number} in {log}");
    }
    assert_eq!(parts.next(), Some("exec >/dev/null\n"), "{log}");
    assert!(parts.next().unwrap().starts_with("echo hidden; echo seen >&2\nseen\nexit code 0"), "{log}");
    let expected: String = (1..=30).map(|number| format!("out{number}")).collect();
    assert_eq!(board.log_of(Stream::Stdout), expected, "no byte but the step's own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_cuts_no_line_of_a_step() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let asks = "printf 'fetching '; perl -MIO::Socket -e '$ENV{HTTP_PROXY} =~ m{//([^/]+)}; \
                my $s = IO::Socket::INET->new($1); print $s \"CONNECT 10.9.8.7:443 HTTP/1.1\\r\\n\\r\\n\"; <$s>'; \
                sleep 0.2; echo is refused";
    let report = board.report(board.offer(job(&forge.url(), vec![step("ask", &[asks])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let (log, said) = (board.log(), board.log_of(Stream::System));
    assert!(said.contains("10.9.8.7") && log.contains("fetching is refused\n"), "{log}");
}

async fn secrets_are_masked_also_in_pieces_by_lines_and_encoded(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let writes = step(
        "write",
        &[
            "printf '%s' \"$KEY\" | head -c 9; sleep 0.5; printf '%s' \"$KEY\" | tail -c +10; echo",
            "printf '%s' \"$KEY\" | tac",
            "printf '%s' \"$KEY\" | base64 -w0; echo",
            "printf '%s' \"user:$KEY\" | base64 -w0; echo",
            "echo $KEY >&2",
        ],
    );
    let mut writing = job(&forge.url(), vec![writes]);
    writing.secrets.insert("KEY".into(), Secret("first-secret-line\nsecond-secret-line".into()));
    let report = board.report(board.offer(writing)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    for piece in ["first-sec", "cret-line", "second", "Zmlyc3Qtc2Vj", "c2VjcmV0LWxpbm"] {
        assert!(!log.contains(piece), "{piece} is in {log}");
    }
}

async fn secrets_are_masked_also_where_an_encoding_is_wrapped(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let writes = step(
        "write",
        &[
            "echo begin; printf %s \"$KEY\" | base64",
            "for width in 20 64 75; do printf %s \"xx$KEY\" | base64 -w $width | sed 's/$/\\r/'; done",
            "printf %s \"$KEY\" | od -An -v -tx1 | tr -d ' \\n' | fold -w 60; echo",
            "printf %s \"$KEY\" | od -An -v -tx1",
            "echo end",
        ],
    );
    let secret = "a-secret-of-more-than-fifty-seven-bytes/as-keys-and-tokens-often-are\nand-a-second-line-of-it-too";
    let mut writing = job(&forge.url(), vec![writes]);
    writing.secrets.insert("KEY".into(), Secret(secret.into()));
    let report = board.report(board.offer(writing)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log();
    let words = log.split("begin\n").last().unwrap().lines().filter(|line| !line.starts_with('$'));
    let shown: Vec<&str> = words.filter(|line| line.len() > 8 && !line.contains("exit code 0")).collect();
    assert_eq!(shown, [] as [&str; 0], "{log}");
}

async fn a_secret_that_is_too_short_to_be_masked_is_named(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let mut short = job(&forge.url(), vec![step("say", &["echo fine"])]);
    for (name, value) in [("PIN", "q7"), ("KEY", "the first line\nq8\nthe last"), ("FINE", "long-enough")] {
        short.secrets.insert(name.into(), Secret(value.into()));
    }
    assert_eq!(board.report(board.offer(short)).await.status, Status::Success);
    let said = board.log_of(Stream::System);
    assert!(said.contains("The secret PIN is shorter than 3 bytes and is not masked\n"), "{said}");
    assert!(said.contains("Lines of the secret KEY that are shorter than 3 bytes are not masked by themselves\n"));
    assert!(!said.contains("FINE") && !said.contains("q7") && !said.contains("q8"), "{said}");
}

async fn an_outage_of_the_board_leaves_no_hole_in_the_log(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let counts = step("count", &["i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line-$i; sleep 0.1; done"]);
    let build = board.offer(job(&forge.url(), vec![counts]));
    board.until_log("line-5\n").await;
    board.heard().away = true;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    board.heard().away = false;
    assert_eq!(board.report(build).await.status, Status::Success);
    let expected: String = (1..=40).map(|number| format!("line-{number}\n")).collect();
    assert!(board.log_of(Stream::Stdout).ends_with(&expected), "{}", board.log());
}

async fn a_line_of_fifty_megabytes_is_cut_and_memory_stays_bounded(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let floods = step("flood", &["head -c 50000000 /dev/zero | tr '\\0' 'a'"]);
    let mut flood = job(&forge.url(), vec![floods]);
    flood.log.max_chunk_bytes = 131_072;
    flood.log.max_batch_bytes = 2_000_000;
    let report = board.report(board.offer(flood)).await;
    assert_eq!(report.status, Status::Success);
    assert!(!report.logs_lost);
    assert_eq!(board.log_of(Stream::Stdout).matches('a').count(), 50_000_000);
    assert!(board.heard().chunks.iter().all(|chunk| chunk.encoded_bytes() <= 131_072));
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 120_000, "{peak} kB");
}

async fn bytes_that_are_no_text_arrive_as_they_are(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let writes = step("write", &["printf 'a\\377\\000b' >&2"]);
    let report = board.report(board.offer(job(&forge.url(), vec![writes]))).await;
    assert_eq!(report.status, Status::Success);
    let heard = board.heard();
    let bytes = heard.chunks.iter().find(|chunk| chunk.stream == Stream::Stderr).unwrap().bytes().unwrap();
    assert_eq!(bytes, b"a\xff\0b");
}
