//! What a step's programs reach that know nothing of a proxy, in a network namespace that the test makes: it has addresses
//! that are private and one that is not, and a resolver.

use crate::board::step;
use crate::fleet::{can_seal, is_root};
use crate::seal::run;
use crate::set_up;
use crate::skipped::skip;
use callboard_worker::isolation::bubblewrap::find;
use protocol::Status;
use protocol::log::Stream;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

const ALLOWED: &str = "10.7.7.7";
const PRIVATE: &str = "10.7.7.9";
const PUBLIC: &str = "11.0.0.1";

/// Makes the namespace and calls the test named `$1` in it.
const IN_A_NAMESPACE: &str = "ip link set lo up
for address in 10.7.7.7 10.7.7.9 11.0.0.1; do ip address add $address/32 dev lo; done
exec \"$0\" --ignored --exact \"$1\" --nocapture";

/// Whether the host has what the test makes its namespace with; if not, it is skipped.
fn has_ip() -> bool {
    let has = find("ip").is_some();
    if !has {
        skip("ip", "ip is not installed (iproute2)");
    }
    has
}

#[test]
fn programs_that_know_no_proxy_reach_what_others_do() {
    if !can_seal() || !is_root() || !has_ip() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "/bin/sh", "-ec", IN_A_NAMESPACE]).arg(std::env::current_exe().unwrap());
    let output = command.arg("network::inside_the_namespace").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// Connects to $1:$2 without heeding any variable, says $3, and shows what comes.
const CONNECT: &str = r#"connect() { perl -e '
use IO::Socket::INET;
my $s = IO::Socket::INET->new(PeerHost => $ARGV[0], PeerPort => $ARGV[1], Timeout => 5) or print("none\n"), exit;
print $s "$ARGV[2]\n"; $s->flush; print scalar(<$s>) // "none\n"' "$@"; }"#;

/// What one datagram to $1:$2 is answered with.
const DATAGRAM: &str = r#"datagram() { perl -e '
use IO::Socket::INET;
my $s = IO::Socket::INET->new(PeerHost => $ARGV[0], PeerPort => $ARGV[1], Proto => "udp", Timeout => 2);
$s->send("x"); $s->recv(my $answer, 9); print "datagram: $!\n"' "$@"; }"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "called by another test, in a namespace of its own"]
async fn inside_the_namespace() {
    let (allowed, private, public) = (echo(ALLOWED), echo(PRIVATE), echo(PUBLIC));
    let resolver = resolve(PRIVATE).to_string();
    let allow = allowed.to_string();
    let args = ["--resolver", &resolver, "--egress-allow", &allow];
    let Some((board, forge, _worker)) = set_up(&args).await else { panic!("no sandbox") };
    let port = |address: SocketAddr| address.port();
    let reaches = [
        format!("connect {ALLOWED} {} allowed", port(allowed)),
        format!("connect {PUBLIC} {} public", port(public)),
        format!("connect public.test {} public-by-name", port(public)),
        format!("connect {PRIVATE} {} private", port(private)),
        format!("connect inward.test {} private-by-name", port(private)),
        format!("connect {ALLOWED} {} other-port", port(private)),
        "connect 169.254.169.254 80 metadata".to_owned(),
        format!("connect 127.0.0.1 {} board", board.url.rsplit(':').next().unwrap()),
        format!("datagram {ALLOWED} {}", port(allowed)),
        "getent hosts nowhere.test || echo unknown".to_owned(),
        "getent ahostsv4 many.test | grep -c STREAM".to_owned(),
    ];
    let commands: Vec<&str> = [CONNECT, DATAGRAM].into_iter().chain(reaches.iter().map(String::as_str)).collect();
    let (report, _) = run(&board, &forge.url(), step("reach", &commands)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let log = board.log_of(Stream::Stdout);
    let answers: Vec<&str> = log.lines().filter(|line| ANSWERS.contains(line)).collect();
    assert_eq!(answers, ANSWERS, "{}", board.log());
    let said = board.log_of(Stream::System);
    for address in [format!("{PRIVATE}:{}", port(private)), "169.254.169.254:80".into()] {
        assert!(said.contains(&format!("network: {address}")), "{address} in {said}");
    }
}

const ANSWERS: [&str; 11] = [
    "allowed",
    "public",
    "public-by-name",
    "none",
    "none",
    "none",
    "none",
    "none",
    "datagram: Connection refused",
    "unknown",
    "40",
];

/// Answers each line of a connection with the line.
fn echo(address: &str) -> SocketAddr {
    serve(address, |mut client| {
        let mut bytes = [0; 1024];
        while let Ok(length @ 1..) = client.read(&mut bytes) {
            client.write_all(&bytes[..length])?;
        }
        Ok(())
    })
}

fn serve(address: &str, each: fn(TcpStream) -> std::io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || each(client).ok());
        }
    });
    address
}

/// Knows a few names, by TCP alone.
fn resolve(address: &str) -> SocketAddr {
    serve(address, |mut client| {
        let mut length = [0; 2];
        while client.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            client.read_exact(&mut question)?;
            let answer = answer(&question);
            client.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes())?;
            client.write_all(&answer)?;
        }
        Ok(())
    })
}

/// One question, of which only the name's first label counts; whatever comes after it is not repeated.
fn answer(question: &[u8]) -> Vec<u8> {
    let label = String::from_utf8_lossy(&question[13..13 + usize::from(question[12])]).into_owned();
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let is_v4 = question[end - 3] == 1;
    let addresses: Vec<Ipv4Addr> = match (is_v4, label.as_str()) {
        (true, "public") => vec![PUBLIC.parse().unwrap()],
        (true, "inward") => vec![PRIVATE.parse().unwrap()],
        (true, "many") => (1..=40).map(|number| Ipv4Addr::new(11, 0, 1, number)).collect(),
        (_, _) => Vec::new(),
    };
    let code = if ["public", "inward", "many"].contains(&label.as_str()) { 0x80 } else { 0x83 };
    let count = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    let mut answer = [&question[..2], &[0x81, code, 0, 1], &count, &[0; 4], &question[12..end]].concat();
    for address in addresses {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}
