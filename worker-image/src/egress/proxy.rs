//! The proxy itself: takes a request from the sandbox, decides on the addresses, connects, carries bytes.

use super::addresses::{Allowed, may_connect};
use super::head::{self, Head};
use super::socket::Address;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What stands for the resolver of this host. No name ends like this.
pub const RESOLVER: &str = "resolver.callboard.invalid:53";
/// Where this host's resolvers are named.
const RESOLVERS: &str = "/etc/resolv.conf";

const HEAD_MAX_BYTES: usize = 16 * 1024;
const PATIENCE: Duration = Duration::from_secs(15);
/// The most connections that are being made at once, and how long one may take in all: its name, each of its addresses, and the wait
/// for a place among the others.
const CONNECTS: Connects = Connects { most: 64, patience: Duration::from_secs(30) };

/// Is told, for the build's log, which connection was refused and why.
pub type Refusals = Arc<dyn Fn(String) + Send + Sync>;

/// What making connections may take.
#[derive(Clone, Copy, Debug)]
struct Connects {
    most: usize,
    patience: Duration,
}

/// What the connections of one proxy share.
struct Shared {
    reach: Reach,
    refusals: Refusals,
    connects: Connects,
    connecting: Semaphore,
}

impl Shared {
    fn new(reach: Reach, refusals: Refusals, connects: Connects) -> Self {
        Self { reach, refusals, connects, connecting: Semaphore::new(connects.most) }
    }

    /// Connects to the first address that may be reached and answers, in time or not at all.
    async fn connect(&self, head: &Head) -> Result<TcpStream, Refused> {
        let connecting = async {
            let _place = self.connecting.acquire().await;
            connect(head, &self.reach).await
        };
        let late = |_| Refused::Unreachable(format!("{}:{}: no connection in time", head.host, head.port));
        timeout(self.connects.patience, connecting).await.map_err(late)?
    }
}

/// What may be reached.
#[derive(Debug)]
pub(super) struct Reach {
    /// What the operator allows besides public addresses.
    pub(super) allowed: Vec<Allowed>,
    /// The resolver; the host's first if absent.
    pub(super) resolver: Option<SocketAddr>,
}

impl Reach {
    /// Whether `address`, which a program looked up by itself, is that of a name that the operator allows.
    async fn allows_by_name(&self, address: SocketAddr) -> bool {
        for name in self.allowed.iter().filter_map(|allowed| allowed.name_at(address.port())) {
            let found = timeout(PATIENCE, lookup_host((name, address.port()))).await;
            let is_it = |other: SocketAddr| other.ip().to_canonical() == address.ip().to_canonical();
            if found.is_ok_and(|found| found.is_ok_and(|mut addresses| addresses.any(is_it))) {
                return true;
            }
        }
        false
    }

    async fn ask(&self) -> io::Result<TcpStream> {
        let resolver = match self.resolver {
            Some(resolver) => resolver,
            None => hosts_resolver(&tokio::fs::read_to_string(RESOLVERS).await?)
                .ok_or_else(|| io::Error::other(format!("{RESOLVERS} names none")))?,
        };
        timeout(PATIENCE, TcpStream::connect(resolver)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

fn hosts_resolver(resolvers: &str) -> Option<SocketAddr> {
    let names = resolvers.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let address = names.filter_map(|address| address.trim().parse::<IpAddr>().ok()).next()?;
    Some(SocketAddr::new(address, 53))
}

/// A proxy that listens; it ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    _accepting: JoinSet<()>,
}

impl Listening {
    /// Listens on a new Unix socket at `path`, for `most` connections at once.
    ///
    /// # Errors
    ///
    /// If the socket can't be made.
    pub(super) fn start(path: &Path, reach: Reach, most: usize, refusals: Refusals) -> io::Result<Self> {
        let listener = UnixListener::bind(Address::of(path)?.path())?;
        let mut accepting = JoinSet::new();
        let shared = Arc::new(Shared::new(reach, refusals, CONNECTS));
        accepting.spawn(accept(listener, most, shared));
        Ok(Self { _accepting: accepting })
    }
}

/// The connections live in this task's set, so that they end with it.
async fn accept(listener: UnixListener, most: usize, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        if places.available_permits() == 0 {
            (shared.refusals)(format!(
                "network: {most} connections are open, and that is the most; more wait until one ends"
            ));
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            serve(client, &shared).await.ok();
            drop(place);
        });
    }
}

async fn serve(mut client: UnixStream, shared: &Shared) -> io::Result<()> {
    let refusals = &shared.refusals;
    let Ok(read) = timeout(PATIENCE, read_head(&mut client)).await else {
        return Ok(());
    };
    let (head, rest) = read?;
    let Some(head) = head::parse(&head) else {
        let why = "not a request that this proxy can serve: neither CONNECT HOST:PORT nor http://";
        refusals(format!("network: {why}"));
        return refuse(&mut client, "400 Bad Request", why).await;
    };
    match shared.connect(&head).await {
        Ok(server) => carry(client, server, head, &rest).await,
        Err(Refused::NotPublic(address)) => {
            let why = format!("{}:{} ({address}) is not a public address", head.host, head.port);
            refusals(format!("network: {why}, and the operator does not allow it"));
            refuse(&mut client, "403 Forbidden", &why).await
        }
        Err(Refused::Unreachable(why)) => {
            refusals(format!("network: {why}"));
            refuse(&mut client, "502 Bad Gateway", &why).await
        }
    }
}

/// Reads up to the empty line; what came after it is returned apart.
async fn read_head(client: &mut UnixStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        let mut part = [0; 2048];
        let read = client.read(&mut part).await?;
        if read == 0 || bytes.len() > HEAD_MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.extend_from_slice(&part[..read]);
    }
}

enum Refused {
    NotPublic(std::net::IpAddr),
    Unreachable(String),
}

/// Connects to the first address that may be reached and answers.
async fn connect(head: &Head, reach: &Reach) -> Result<TcpStream, Refused> {
    if format!("{}:{}", head.host, head.port) == RESOLVER {
        return reach.ask().await.map_err(|error| Refused::Unreachable(format!("the host's resolver: {error}")));
    }
    let mut refused = Refused::Unreachable(format!("{} has no address", head.host));
    for address in resolve(head).await? {
        if !may_connect(&head.host, address, &reach.allowed) && !reach.allows_by_name(address).await {
            refused = Refused::NotPublic(address.ip());
            continue;
        }
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(error)) => refused = Refused::Unreachable(format!("{}:{}: {error}", head.host, head.port)),
            Err(_) => refused = Refused::Unreachable(format!("{}:{}: no answer", head.host, head.port)),
        }
    }
    Err(refused)
}

async fn resolve(head: &Head) -> Result<Vec<SocketAddr>, Refused> {
    match timeout(PATIENCE, lookup_host((head.host.as_str(), head.port))).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(_)) | Err(_) => Err(Refused::Unreachable(format!("{}: name not found", head.host))),
    }
}

async fn carry(mut client: UnixStream, mut server: TcpStream, head: Head, rest: &[u8]) -> io::Result<()> {
    match head.forward {
        Some(forward) => server.write_all(&forward).await?,
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
    }
    server.write_all(rest).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

async fn refuse(client: &mut UnixStream, status: &str, why: &str) -> io::Result<()> {
    let body = format!("callboard: {why}\n");
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n");
    client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn connections_to_a_host_that_does_not_answer_end_in_time_however_many() {
        // A listener whose queue is full answers nobody.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let address = silent.local_addr().unwrap();
        let mut filling = JoinSet::new();
        (0..8).for_each(|_| drop(filling.spawn(TcpStream::connect(address))));
        tokio::time::sleep(Duration::from_millis(200)).await;

        let connects = Connects { most: 2, patience: Duration::from_millis(300) };
        let allowed = [address.to_string().parse().unwrap()];
        let shared = Arc::new(Shared::new(Reach { allowed: allowed.into(), resolver: None }, Arc::new(drop), connects));
        let (begun, mut ended) = (Instant::now(), JoinSet::new());
        for _ in 0..40 {
            let shared = Arc::clone(&shared);
            let head = head::parse(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).unwrap();
            ended.spawn(async move { shared.connect(&head).await.is_err() });
        }
        assert!(ended.join_all().await.into_iter().all(|refused| refused));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_host_that_answers_has_its_turn_beside_those_that_do_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let allowed = [address.to_string().parse().unwrap()];
        let connects = Connects { most: 1, patience: Duration::from_secs(10) };
        let shared = Shared::new(Reach { allowed: allowed.into(), resolver: None }, Arc::new(drop), connects);
        let head = head::parse(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).unwrap();
        assert!(shared.connect(&head).await.is_ok() && shared.connect(&head).await.is_ok());
    }

    fn check_hosts_resolver(resolvers: &str, expected: Option<&str>) {
        assert_eq!(hosts_resolver(resolvers), expected.map(|address| address.parse().unwrap()), "{resolvers:?}");
    }

    #[test]
    fn the_hosts_resolver_is_the_first_that_can_be_read() {
        check_hosts_resolver("# by hand\nsearch corp\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n", Some("10.0.0.2:53"));
        check_hosts_resolver("  nameserver\t2001:db8::53", Some("[2001:db8::53]:53"));
        check_hosts_resolver("nameserver nowhere\nnameserver 127.0.0.53", Some("127.0.0.53:53"));
        check_hosts_resolver("# nameserver 10.0.0.2\noptions edns0\n", None);
        check_hosts_resolver("", None);
    }

    async fn check_by_name(allowed: &str, address: &str, expected: bool) {
        let reach = Reach { allowed: vec![allowed.parse().unwrap()], resolver: None };
        assert_eq!(reach.allows_by_name(address.parse().unwrap()).await, expected, "{allowed}, {address}");
    }

    #[tokio::test]
    async fn an_address_is_allowed_by_the_name_that_it_has_and_at_that_port_alone() {
        check_by_name("localhost:5000", "127.0.0.1:5000", true).await;
        check_by_name("localhost:5000", "[::ffff:127.0.0.1]:5000", true).await;
        check_by_name("localhost:5000", "127.0.0.1:5001", false).await;
        check_by_name("localhost:5000", "127.0.0.2:5000", false).await;
        // An address is no name; the rule for addresses decides on it.
        check_by_name("127.0.0.1:5000", "127.0.0.1:5000", false).await;
        check_by_name("name.invalid:5000", "127.0.0.1:5000", false).await;
    }
}
