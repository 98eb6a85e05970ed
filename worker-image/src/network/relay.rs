//! Carries connections out of the namespace to the proxy's socket: those that name the proxy as they are, all others after
//! asking the proxy for the address that they were for.

use crate::egress::Address;
use nix::sys::socket::sockopt::{Ip6tOriginalDst, OriginalDst};
use nix::sys::socket::{SockaddrIn, SockaddrIn6, getsockopt};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

/// The longest answer of the proxy.
const ANSWER_MAX_BYTES: usize = 4096;

/// What a connection that was accepted is for.
#[derive(Clone, Debug)]
pub(super) enum For {
    /// The proxy itself.
    Proxy,
    /// The address that it was made to.
    Itself,
    /// The resolver of the proxy's host.
    Resolver,
}

/// The way to the proxy, shared by all that goes out.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) socket: Arc<Address>,
    /// A place for each connection that may be open at once.
    pub(super) places: Arc<Semaphore>,
}

/// Accepts for ever.
pub(super) async fn accept(listener: TcpListener, proxy: Proxy, what: For) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&proxy.places).acquire_owned().await else { return };
        let (socket, what) = (Arc::clone(&proxy.socket), what.clone());
        tokio::spawn(async move {
            // A client that can't be served sees its connection closed; the proxy tells the build's log why.
            carry(client, socket.path(), what).await.ok();
            drop(place);
        });
    }
}

async fn carry(mut client: TcpStream, socket: &Path, what: For) -> io::Result<()> {
    let mut proxy = match what {
        For::Proxy => UnixStream::connect(socket).await?,
        For::Itself => tunnel(socket, &meant(&client)?.to_string()).await?,
        For::Resolver => tunnel(socket, crate::egress::RESOLVER).await?,
    };
    copy_bidirectional(&mut client, &mut proxy).await.map(drop)
}

/// A connection through the proxy to `authority`, HOST:PORT.
pub(super) async fn tunnel(socket: &Path, authority: &str) -> io::Result<UnixStream> {
    let mut proxy = UnixStream::connect(socket).await?;
    proxy.write_all(format!("CONNECT {authority} HTTP/1.1\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the empty line is the server's, and the client's.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == ANSWER_MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        answer.push(proxy.read_u8().await?);
    }
    if answer.starts_with(b"HTTP/1.1 200 ") { Ok(proxy) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
}

/// The address that a connection was made to, before the rule led it here.
fn meant(client: &TcpStream) -> io::Result<SocketAddr> {
    if client.peer_addr()?.ip().to_canonical().is_ipv4() {
        let address = SockaddrIn::from(getsockopt(client, OriginalDst)?);
        return Ok(SocketAddrV4::from(address).into());
    }
    let address = SockaddrIn6::from(getsockopt(client, Ip6tOriginalDst)?);
    Ok(SocketAddrV6::new(address.ip(), address.port(), 0, 0).into())
}
