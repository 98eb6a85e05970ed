//! What a step can't see, reach or do.

use crate::board::{TOKEN, job, step};
use crate::{BackEnd, Board, set_up, set_up_in};
use callboard_worker::proc;
use protocol::Status;
use protocol::log::Stream;
use protocol::pipeline::{Network, Step};
use protocol::worker::{Complete, Secret};
use std::fs;

in_both! {
    a_step_reaches_what_the_operator_allows_and_nothing_else_of_the_inside,
    builds_that_hold_all_connections_they_can_take_none_of_anothers,
    whatever_the_proxy_refuses_is_in_the_log_once,
    a_step_without_network_has_no_proxy_either,
    no_argument_and_no_foreign_environment_holds_a_secret,
}

pub(crate) async fn run(board: &Board, url: &str, step: Step) -> (Complete, String) {
    let report = board.report(board.offer(job(url, vec![step]))).await;
    (report, board.log_of(Stream::Stdout))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_sees_nothing_of_the_host_but_its_programs() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let looks = step(
        "look",
        &[
            "test ! -e /root && echo home=$(ls -A /home | tr '\\n' ' ') var=$(ls -A /var | tr '\\n' ' ')",
            "echo processes=$(ls -d /proc/[0-9]* | wc -l) user=$(id -un) caps=$(grep CapEff /proc/self/status | cut -f2)",
            "echo privileges=$(grep NoNewPrivs /proc/self/status | cut -f2)",
            "env | sort",
            "for path in /usr /etc / /dev /dev/pts /proc /sys /var /home; do touch $path/x 2>/dev/null && echo $path; done; \
             echo nothing outside can be written",
            "echo null >/dev/null && head -c 3 /dev/urandom | wc -c",
            "perl -e 'open(F, q(+<), q(/dev/ptmx)) or die $!; print qq(a terminal of its own\\n)'",
            "echo sizes=$(df -BM --output=size /tmp /var/tmp /dev/shm /run | tail -n +2 | tr -d '\\n')",
            "unshare -U true 2>/dev/null || echo no namespace of its own",
            "cat /etc/shadow /etc/hostname 2>/dev/null || echo no file that tells",
            "test ! -e /proc/self/fd/9 && echo no descriptor of others",
        ],
    );
    let (report, log) = run(&board, &forge.url(), looks).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    for line in [
        "home=build var=tmp\n",
        "user=build caps=0000000000000000\n",
        "privileges=1\n",
        "\nnothing outside can be written\n",
        "\n3\n",
        "a terminal of its own\n",
        "sizes= 2048M 512M 448M 64M\n",
        "no namespace of its own\n",
        "no file that tells\n",
        "no descriptor of others\n",
        "CI=true\n",
        "CALLBOARD=true\n",
        "CALLBOARD_STEP=look\n",
        "HOME=/home/build\n",
        &format!("CALLBOARD_COMMIT={}\n", forge.commit),
    ] {
        assert!(log.contains(line), "{line:?} is not in {log}");
    }
    assert!(!log.contains(TOKEN) && !log.contains("CALLBOARD_WORKER"));
}

async fn a_step_reaches_what_the_operator_allows_and_nothing_else_of_the_inside(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let (inside, allowed) = (board.url.clone(), forge.address.clone());
    let reaches = step(
        "reach",
        &[
            &format!("curl -s --noproxy '*' {inside} || echo no way around the proxy"),
            &format!("curl -s -o /dev/null -w 'plain %{{http_code}}\\n' --noproxy '' {inside}"),
            &format!("curl -s --noproxy '' -p {inside} || echo no tunnel either"),
            &format!(
                "curl -sk --noproxy '' -o /dev/null -w 'allowed %{{http_code}}\\n' https://{allowed}/app.git/HEAD"
            ),
            "curl -s -o /dev/null -w 'metadata %{http_code}\\n' http://169.254.169.254/latest/",
        ],
    );
    let (report, log) = run(&board, &forge.url(), reaches).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    for line in ["no way around the proxy\n", "plain 403\n", "no tunnel either\n", "allowed 200\n", "metadata 403\n"] {
        assert!(log.contains(line), "{line:?} is not in {}", board.log());
    }
    assert!(board.log_of(Stream::System).contains("is not a public address"));
}

/// Opens as many connections to the operator's host as it gets, and keeps them until it is ended.
const GREEDY: &str = r#"perl -e '
use Socket;
for (1..256) {
    socket(my $s, AF_INET, SOCK_STREAM, 0) or die;
    connect($s, pack_sockaddr_in($ENV{http_proxy} =~ /(\d+)$/, INADDR_LOOPBACK)) or die;
    syswrite($s, "CONNECT $ENV{ALLOWED} HTTP/1.1\r\n\r\n");
    sysread($s, my $answer, 99);
    push @kept, $s if $answer =~ /200/;
}
$| = 1; print "keeps ", scalar(@kept), " connections\n"; sleep 100' "#;

async fn builds_that_hold_all_connections_they_can_take_none_of_anothers(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--slots", "4"]).await else { return };
    for number in 1..=3 {
        let mut greedy = job(&forge.url(), vec![step("greedy", &[GREEDY])]);
        greedy.env.insert("ALLOWED".into(), forge.address.clone());
        board.offer(greedy);
        board.until_log("keeps 256 connections\n").await;
        board.heard().chunks.clear();
        let opened = fs::read_dir(format!("/proc/{}/fd", worker.pid())).unwrap().count();
        assert!(opened < 64 + number * 32, "{opened} descriptors for {number} builds");
    }
    let fetches = format!("curl -sk --noproxy '' https://{}/app.git/HEAD", forge.address);
    let (report, log) = run(&board, &forge.url(), step("modest", &[&fetches, "ulimit -Sn"])).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert!(log.contains("refs/heads/main") && log.ends_with("1024\n"), "{log}");
}

async fn whatever_the_proxy_refuses_is_in_the_log_once(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let asks = step(
        "ask",
        &[
            "for i in 1 2 3; do curl -s http://nowhere.invalid/ -o /dev/null; done",
            "curl -s http://169.254.169.254/latest/ -o /dev/null",
            "curl -s ftp://example.com/ -o /dev/null; true",
            "perl -e 'use Socket; socket(S, AF_INET, SOCK_STREAM, 0); connect(S, pack_sockaddr_in(\
             $ENV{http_proxy} =~ /(\\d+)$/, INADDR_LOOPBACK)); syswrite(S, \"GET / HTTP/1.1\\r\\n\\r\\n\"); print <S>'",
        ],
    );
    run(&board, &forge.url(), asks).await;
    let said = board.log_of(Stream::System);
    for line in [
        "network: nowhere.invalid: name not found\n",
        "network: 169.254.169.254:80 (169.254.169.254) is not a public address, and the operator does not allow it\n",
        "network: not a request that this proxy can serve",
    ] {
        assert_eq!(said.matches(line).count(), 1, "{line:?} in {said}");
    }
}

async fn a_step_without_network_has_no_proxy_either(back_end: BackEnd) {
    let Some((board, forge, _worker)) = set_up_in(back_end, &[]).await else { return };
    let mut alone = step("alone", &["env | grep -ci _proxy || true", "ls /run/callboard"]);
    alone.network = Network::None;
    let (report, log) = run(&board, &forge.url(), alone).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert!(log.starts_with("0\n") && !log.contains("egress"), "{log}");
}

async fn no_argument_and_no_foreign_environment_holds_a_secret(back_end: BackEnd) {
    const SECRET: &str = "a-secret-value-of-the-test";
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut job = job(&forge.url(), vec![step("wait", &["echo ready=$PASSWORD", "sleep 2", "test -n \"$PASSWORD\""])]);
    job.secrets.insert("PASSWORD".into(), Secret(SECRET.into()));
    let build = board.offer(job);
    board.until_log("ready=***").await;
    let (left, processes) = (worker.left(), proc::all());
    assert!(left.len() >= 4, "guard, bubblewrap, init and shell: {left:?}");
    let tells = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(SECRET);
    for process in &processes {
        assert!(!process.args.iter().any(|arg| arg.contains(SECRET)), "{:?}", process.args);
        let has_it = fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(tells);
        let is_steps =
            left.contains(&process.pid) && process.args.first().is_some_and(|arg| arg == "/bin/sh" || arg == "sleep");
        assert!(!has_it || is_steps, "{:?} has it in its environment", process.args);
    }
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success);
    assert!(!board.log().contains(SECRET) && !worker.log().contains(SECRET));
}
