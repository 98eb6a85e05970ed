//! What somebody looks for who is inside a step and wants out.

use crate::board::{TOKEN, job, step};
use crate::fleet::is_root;
use crate::{Board, set_up};
use protocol::Status;
use protocol::log::Stream;
use protocol::worker::Job;
use std::os::unix::fs::MetadataExt as _;
use tokio::net::TcpListener;

/// Runs a step of `commands`, which says what it finds in lines that begin with `found:`.
async fn findings(board: &Board, url: &str, commands: &[&str]) -> Vec<String> {
    findings_of(board, job(url, vec![step("seek", commands)])).await
}

async fn findings_of(board: &Board, job: Job) -> Vec<String> {
    let report = board.report(board.offer(job)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log_of(Stream::Stdout);
    log.lines().filter_map(|line| line.strip_prefix("found: ")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_token_and_environment_are_nowhere() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    // The step must not find its own words.
    let pattern = format!("[{}]{}", &TOKEN[..1], &TOKEN[1..]);
    let seek = step(
        "seek",
        &[
            &format!(
                "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -a '{pattern}' | sed 's/^/found: /'"
            ),
            "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a 'CALLBOARD_[UWA]' | sed 's/^/found: /' || true",
            &format!(
                "grep -rslaI '{pattern}' / --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys | sed 's/^/found: /'"
            ),
            &format!("ls -A '{}' 2>/dev/null | sed 's/^/found: /'", worker.root.display()),
            "for fd in /proc/[0-9]*/fd/*; do case $(readlink $fd) in pipe:*|/dev/null|/run/callboard/*|socket:*|'') ;; \
             /proc/*) ;; *) echo found: $fd $(readlink $fd) ;; esac; done",
        ],
    );
    let found = findings_of(&board, job(&forge.url(), vec![seek.clone()])).await;
    assert!(found.is_empty(), "{found:?}");
    assert!(!board.log().contains(TOKEN));
    board.heard().chunks.clear();
    let mut planted = job(&forge.url(), vec![seek]);
    planted.env.insert("PLANTED".into(), TOKEN.into());
    let found = findings_of(&board, planted).await;
    assert!(found.contains(&format!("PLANTED={TOKEN}")), "what is there is found: {found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_of_the_host_and_nothing_outside_the_workspace_is_there() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let found = findings(
        &board,
        &forge.url(),
        &[
            "for at in /run/docker.sock /var/run/docker.sock /run/podman /run/containerd /run/systemd /run/dbus /tmp/.X11-unix; \
             do test ! -e $at || echo found: $at; done",
            "find / -xdev -type s 2>/dev/null | sed 's/^/found: /'",
            "for at in /root /sys /boot /opt /srv /mnt /media /var/lib /var/log /etc/shadow /etc/ssh; \
             do test ! -e $at || echo found: $at; done",
            "ls -A /home | grep -v '^build$' | sed 's/^/found: /' || true",
            "for at in /dev/sda /dev/vda /dev/mem /dev/kmsg /dev/kvm /dev/fuse /dev/loop0; do test ! -e $at || echo found: $at; done",
            "for set in Inh Prm Eff Bnd Amb; do grep Cap$set: /proc/self/status; done | grep -v 0000000000000000 | sed 's/^/found: /' || true",
            "grep -q 'NoNewPrivs:.1' /proc/self/status || echo found: new privileges",
            "grep -q 'Seccomp:.2' /proc/self/status || echo found: no filter",
            "test $(ls -d /proc/[0-9]* | wc -l) -lt 8 || echo found: $(cat /proc/[0-9]*/comm)",
            "su -c id 2>/dev/null | sed 's/^/found: /'; id -u | grep -v '^1000$' | sed 's/^/found: /' || true",
        ],
    )
    .await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_the_board_nor_its_database_nor_the_clouds_metadata_answers() {
    let Some((board, forge, _worker)) = set_up(&[]).await else { return };
    let database = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (control, database) = (board.url.trim_start_matches("http://").to_owned(), database.local_addr().unwrap());
    let port = database.port();
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let allowed = &forge.address;
    let mut commands = vec![format!(
        "curl -sk --noproxy '' -o /dev/null -w 'reached: %{{http_code}}\\n' https://{allowed}/app.git/HEAD"
    )];
    for url in [
        format!("http://{control}/healthz"),
        format!("http://{database}/"),
        format!("http://localhost:{port}/"),
        format!("http://{host}:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://2852039166/latest/meta-data/".into(),
        "http://169.254.170.2/v2/credentials".into(),
        "http://[fd00:ec2::254]/latest/meta-data/".into(),
        "http://[::ffff:169.254.169.254]/latest/meta-data/".into(),
        "http://metadata.google.internal/computeMetadata/v1/".into(),
        "http://10.0.0.1/".into(),
        "http://[fe80::1]/".into(),
    ] {
        // By the proxy, by a tunnel through it, round it, and by the redirect of one who may be reached.
        for how in ["--noproxy ''", "--noproxy '' -p", "--noproxy '*'"] {
            commands.push(format!(
                "curl -gs -m 5 {how} -o /dev/null -w '%{{http_code}}' '{url}' >code || true; \
                 case $(cat code) in 000|403|502) ;; *) echo \"found: {url} $(cat code)\" ;; esac"
            ));
        }
        commands.push(format!("curl -gskL -m 5 --noproxy '' -o /dev/null -w '%{{http_code}} %{{num_redirects}}' 'https://{allowed}/redirect?{url}' >code || true; \
             case $(cat code) in '000 1'|'403 1'|'502 1') ;; *) echo \"found: redirect to {url} $(cat code)\" ;; esac"));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let found = findings(&board, &forge.url(), &commands).await;
    assert!(found.is_empty(), "{found:?}");
    assert!(board.log().contains("\nreached: 200\n"), "{}", board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_sees_nothing_of_another_and_is_nobody_outside() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let other = board.offer(job(
        &forge.url(),
        vec![step("leave", &["sh -c 'echo theirs >a-mark-of-theirs'; echo ready; sleep 100"])],
    ));
    board.until_log("\nready\n").await;
    let mark = worker.root.join(other.to_string()).join("workspace/a-mark-of-theirs");
    assert!(mark.exists());
    board.heard().chunks.clear();
    let found = findings(
        &board,
        &forge.url(),
        &[
            "find / -xdev -name 'a-mark-of-*' 2>/dev/null | sed 's/^/found: /'",
            "grep -a 'a-mark-of-t[h]eirs' /proc/[0-9]*/cmdline | sed 's/^/found: /'",
        ],
    )
    .await;
    assert!(found.is_empty(), "{found:?}");
    let kills = board.report(board.offer(job(&forge.url(), vec![step("kill", &["exec kill -9 -1"])]))).await;
    assert_eq!(kills.status, Status::Success, "{}", board.log());
    assert!(mark.exists() && !worker.left().is_empty(), "the other build goes on");
    if is_root() {
        assert!(mark.metadata().unwrap().uid() >= 300_000, "a user of the slot's own");
    }
}
