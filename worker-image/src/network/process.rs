//! The process that is one build's network, `callboard-worker network`, and the worker's side of it.
//!
//! Its standard input ends with the worker, and it ends with its standard input; the namespaces end with it and the last
//! sandbox in them. In a container its guard holds that input, and says in it until when it may go on.

use super::contained::Awaited;
use super::relay::{self, For, Proxy};
use super::{inward, namespace, resolver};
use crate::descriptors;
use crate::egress::Address;
use crate::isolation::ask;
use crate::stdin;
use nix::unistd::setsid;
use serde::{Deserialize, Serialize};
use std::future::pending;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as Listener, UdpSocket as Socket};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::net::{TcpListener, UdpSocket};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout;

/// How long the process may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);
const RESOLVER_PORT: u16 = 53;

/// A build's way out, as its tasks take it: a task that finds none of its kind is not started.
#[derive(Clone, Debug, Default)]
pub struct WayOut {
    /// The network of its sandboxes.
    pub sandboxes: Option<Inside>,
    /// The network of its containers.
    pub containers: Option<Awaited>,
}

/// How a sandbox gets into a build's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The process whose user and network namespaces it is made in.
    pub process: u32,
    /// The port on loopback that is the proxy.
    pub proxy_port: u16,
}

/// What listens in a network and is to be reached from outside.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// Its port on loopback, inside.
    pub port: u16,
    /// Where connections to it are taken, outside; nothing must be there.
    pub door: &'a Path,
}

/// What the process says when all is ready.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) proxy_port: u16,
    /// Why only programs that heed the proxy's variables get out.
    pub(super) weak: Option<String>,
}

/// Hears it.
///
/// # Errors
///
/// What the process says, or that it does not in time.
pub(super) async fn ready(said: impl AsyncRead + Unpin) -> io::Result<Ready> {
    let mut line = String::new();
    timeout(PATIENCE, BufReader::new(said).read_line(&mut line)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let ready: Result<Ready, String> = serde_json::from_str(&line)?;
    ready.map_err(io::Error::other)
}

/// A running network; it ends at the latest when this is dropped.
#[derive(Debug)]
pub struct Network {
    /// Nobody waits for it before its end is wanted: even if it dies, no other process gets its number, by which sandboxes find
    /// the namespaces.
    process: Child,
    /// The way into it.
    pub inside: Inside,
    /// Why only programs that heed the proxy's variables get out, if so.
    pub weak: Option<String>,
}

impl Network {
    /// Starts the network of `build`, whose proxy listens at `socket`; with a `service`, there is a way in to that.
    ///
    /// # Errors
    ///
    /// If it can't be started, or the kernel lets it have no namespace.
    pub async fn start(
        binary: &Path,
        build: &str,
        socket: &Path,
        run_as: Option<u32>,
        service: Option<Service<'_>>,
    ) -> io::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["network", "--build", build, "--socket"]).arg(socket);
        if let Some(Service { port, door }) = service {
            command.args(["--service", &port.to_string(), "--door"]).arg(door);
        }
        if let Some(id) = run_as {
            command.uid(id).gid(id);
        }
        command.env_clear().current_dir("/").kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let said = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let Ready { proxy_port, weak } = ready(said).await?;
        let id = process.id().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { process, inside: Inside { process: id, proxy_port }, weak })
    }

    /// Ends it, and waits until it is gone.
    pub async fn end(mut self) {
        drop(self.process.stdin.take());
        if timeout(END_PATIENCE, self.process.wait()).await.is_err() {
            self.process.kill().await.ok();
        }
    }
}

/// What listens in the namespace.
struct Listeners {
    proxy: Listener,
    all: Listener,
    names: Socket,
    names_by_tcp: Listener,
    weak: Option<String>,
}

/// The whole life of the process `callboard-worker network`, which may have so many descriptors. With a `user` it is in namespaces
/// of its own already, as root, and becomes that user.
///
/// # Errors
///
/// If there can't be one. That is said on standard output as well.
pub fn serve(socket: &Path, service: Option<Service<'_>>, user: Option<u32>, descriptors: u64) -> io::Result<()> {
    // Ctrl-C in the worker's terminal is not for it.
    setsid().ok();
    let door = || service.map(|service| inward::Door::open(service)).transpose();
    let entered = if user.is_some() { Ok(()) } else { namespace::enter() };
    let (listeners, door) =
        match entered.and_then(|()| Ok((listen()?, user.map_or(Ok(()), namespace::become_user)?, door()?))) {
            Ok((listeners, (), door)) => (listeners, door),
            Err(error) => {
                say(&Err(error.to_string()));
                return Err(error);
            }
        };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let leash = Leash::held(user.is_some())?;
    runtime.block_on(relay(listeners, door, socket, descriptors, leash))
}

/// What the process ends with.
enum Leash {
    /// Its input's end.
    Input(Receiver<()>),
    /// What ends it past all that it does.
    Guard,
}

impl Leash {
    fn held(in_container: bool) -> io::Result<Self> {
        if !in_container {
            return Ok(Self::Input(stdin::end()?));
        }
        ask::heed(io::BufReader::new(io::stdin()))?;
        Ok(Self::Guard)
    }

    async fn ends(self) {
        match self {
            Self::Input(end) => drop(end.await),
            Self::Guard => pending().await,
        }
    }
}

fn listen() -> io::Result<Listeners> {
    namespace::bring_up()?;
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Of both families where there are two.
    let all = Listener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| Listener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let weak = namespace::redirect(all.local_addr()?.port()).err().map(|error| error.to_string());
    let (names, names_by_tcp) = (Socket::bind(loopback(RESOLVER_PORT))?, Listener::bind(loopback(RESOLVER_PORT))?);
    let proxy = Listener::bind(loopback(0))?;
    for listener in [&all, &proxy, &names_by_tcp] {
        listener.set_nonblocking(true)?;
    }
    names.set_nonblocking(true)?;
    Ok(Listeners { proxy, all, names, names_by_tcp, weak })
}

async fn relay(
    listeners: Listeners,
    door: Option<inward::Door>,
    socket: &Path,
    descriptors: u64,
    leash: Leash,
) -> io::Result<()> {
    let Listeners { proxy, all, names, names_by_tcp, weak } = listeners;
    let proxy_port = proxy.local_addr()?.port();
    let out = Proxy {
        socket: Arc::new(Address::of(socket)?),
        places: Arc::new(Semaphore::new(descriptors::connections(descriptors))),
    };
    tokio::spawn(relay::accept(TcpListener::from_std(proxy)?, out.clone(), For::Proxy));
    tokio::spawn(relay::accept(TcpListener::from_std(all)?, out.clone(), For::Itself));
    tokio::spawn(relay::accept(TcpListener::from_std(names_by_tcp)?, out.clone(), For::Resolver));
    tokio::spawn(resolver::answer(UdpSocket::from_std(names)?, out));
    if let Some(door) = door {
        tokio::spawn(door.accept());
    }
    say(&Ok(Ready { proxy_port, weak }));
    leash.ends().await;
    Ok(())
}

fn say(ready: &Result<Ready, String>) {
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(ready).unwrap_or_default()).ok();
}
