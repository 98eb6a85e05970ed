//! System calls that a step is refused, and programs that must do without them.

use crate::board::{job, step};
use crate::set_up;
use crate::skipped::skip;
use protocol::Status;
use protocol::log::Stream;
use std::path::Path;

/// Makes calls by their numbers on x86_64 and says how each was answered.
const CALLS: &str = r#"perl -e '
my %calls = (
    mount => [165, 0, 0, 0, 0, 0], umount => [166, 0, 0], pivot_root => [155, 0, 0], setns => [308, 0, 0],
    unshare_user => [272, 0x10000000], unshare_time => [272, 0x80], clone_net => [56, 0x40000011, 0, 0, 0, 0],
    clone3 => [435, 0, 0], keyctl => [250, 0, 0], add_key => [248, 0, 0, 0, 0, 0], request_key => [249, 0, 0, 0, 0],
    bpf => [321, 0, 0, 0], perf_event_open => [298, 0, 0, 0, 0, 0], userfaultfd => [323, 0], io_uring_setup => [425, 1, 0],
    kexec_load => [246, 0, 0, 0, 0], init_module => [175, 0, 0, 0], open_by_handle_at => [304, 0, 0, 0],
    fsopen => [430, 0, 0], open_tree => [428, 0, 0, 0], vmsplice => [278, 0, 0, 0, 0], personality => [135, 0x0400000],
    tiocsti => [16, 0, 0x5412, 0], tiocsti_wide => [16, 0, 0x100005412, 0],
    vsock => [41, 40, 1, 0], packet => [41, 17, 3, 0], alg => [41, 38, 5, 0], netlink_audit => [41, 16, 3, 9],
    newer => [470, 0], x32 => [0x40000000 + 39, 0],
    route => [41, 16, 3, 0], inet6 => [41, 10, 1, 0], unshare_files => [272, 0x400], getpid => [39, 0],
);
for (sort keys %calls) {
    my ($number, @args) = @{$calls{$_}};
    my $answer = syscall($number, @args);
    print "called: $_ ", ($answer < 0 ? $!{EPERM} ? "EPERM" : $!{ENOSYS} ? "ENOSYS" : $!{EAFNOSUPPORT} ? "EAFNOSUPPORT" : $! : "ok"), "\n";
}'"#;

const UNKNOWN: [&str; 5] = ["clone3", "io_uring_setup", "vmsplice", "newer", "x32"];
const NO_SUCH_FAMILY: [&str; 4] = ["vsock", "packet", "alg", "netlink_audit"];
const OK: [&str; 4] = ["route", "inet6", "unshare_files", "getpid"];

#[tokio::test(flavor = "multi_thread")]
async fn the_kernels_rarer_calls_are_refused() {
    if std::env::consts::ARCH != "x86_64" {
        return skip("x86_64", "the calls are made by their numbers");
    }
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let looks = step("look", &[CALLS, "grep Seccomp: /proc/self/status", "grep -c Seccomp_filters /proc/1/status"]);
    let report = board.report(board.offer(job(&forge.url(), vec![looks]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log_of(Stream::Stdout);
    let answers: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("called: ")?.split_once(' ')).collect();
    assert_eq!(answers.len(), 34, "{log}");
    for (call, answer) in answers {
        let expected = match call {
            _ if UNKNOWN.contains(&call) => "ENOSYS",
            _ if NO_SUCH_FAMILY.contains(&call) => "EAFNOSUPPORT",
            _ if OK.contains(&call) => "ok",
            _ => "EPERM",
        };
        assert_eq!(answer, expected, "{call}");
    }
    assert!(log.contains("Seccomp:\t2\n"), "{log}");
}

/// What must work, by the program that it takes.
const PROGRAMS: [(&str, &str); 10] = [
    ("python3", "python3 -c 'import subprocess, threading, ssl; subprocess.run([\"true\"], check=True)'"),
    (
        "node",
        "node -e 'require(\"fs\").promises.readFile(\"/etc/passwd\").then(() => new (require(\"worker_threads\").Worker)(\"0\", {eval: true}))'",
    ),
    ("java", "java -version"),
    ("gcc", "echo 'int main(void) { return 0; }' >p.c && gcc p.c -o p && ./p"),
    ("make", "printf 'all: a b\\na b:\\n\\ttrue\\n' >Makefile && make -j2"),
    (
        "git",
        "git init -q r && git -C r -c user.name=t -c user.email=t@example.com commit -q --allow-empty -m t && git -C r gc -q",
    ),
    ("gdb", "gdb -batch -ex run -ex bt /bin/true 2>&1 | grep -q 'exited normally'"),
    ("strace", "strace -f -o trace true && grep -q exit_group trace"),
    (
        "go",
        "printf 'package main\\nfunc main() { c := make(chan int); go func() { c <- 1 }(); <-c }' >p.go && go run p.go",
    ),
    ("tar", "tar cf - /usr/share/perl5 2>/dev/null | xz -T2 -0 >/dev/null"),
];

#[tokio::test(flavor = "multi_thread")]
async fn usual_programs_do_without_them() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let is_here = |name: &str| ["/usr/bin", "/usr/local/bin"].iter().any(|at| Path::new(at).join(name).exists());
    let (here, absent): (Vec<_>, Vec<_>) = PROGRAMS.iter().partition(|(name, _)| is_here(name));
    let commands: Vec<String> = here.iter().map(|(name, line)| format!("{line} || echo {name} fails")).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).chain(["echo all tried"]).collect();
    let report = board.report(board.offer(job(&forge.url(), vec![step("use", &commands)]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log_of(Stream::Stdout);
    let fails = log.lines().any(|line| line.ends_with(" fails") && !line.starts_with('$'));
    assert!(log.contains("all tried\n") && !fails, "{}", board.log());
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(|(name, _)| *name).collect();
        skip("programs", &format!("not installed in /usr, so not tried: {}", names.join(", ")));
    }
}

/// Asks for its number as a 32-bit program would.
const OLD: &str =
    "int main(void) { int id; __asm__ volatile(\"int $0x80\" : \"=a\"(id) : \"a\"(20)); return id == 0; }";

#[tokio::test(flavor = "multi_thread")]
async fn a_32_bit_program_is_ended_and_the_log_says_why() {
    if std::env::consts::ARCH != "x86_64" || !Path::new("/usr/bin/gcc").exists() {
        return skip("gcc", "no gcc in /usr for x86_64");
    }
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let old = step("old", &[&format!("echo '{OLD}' >p.c"), "gcc p.c -o p", "exec ./p"]);
    let report = board.report(board.offer(job(&forge.url(), vec![old]))).await;
    assert_eq!(report.steps[0].exit_code, Some(159), "{}", board.log());
    assert!(board.log().contains("32-bit programs can't run"), "{}", board.log());
}
