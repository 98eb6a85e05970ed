//! The way in: what is connected to a Unix socket outside of the namespace is carried to a service's port on loopback inside.

use super::process::Service;
use crate::egress::Address;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixListener as Listener;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// A way in that is open; how many connections come is decided by whoever connects.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    port: u16,
}

impl Door {
    /// Opens one. A program that connects outside is served once this is accepted from.
    ///
    /// # Errors
    ///
    /// If something is there already, or nothing can be.
    pub fn open(service: Service<'_>) -> io::Result<Self> {
        let listener = Listener::bind(Address::of(service.door)?.path())?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, port: service.port })
    }

    /// Accepts for ever, in a runtime.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn accept(self) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener)?;
        loop {
            match listener.accept().await {
                // One that the service does not take is closed: so it would see it outside.
                Ok((outside, _)) => drop(tokio::spawn(carry(outside, self.port))),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn carry(mut outside: UnixStream, port: u16) -> io::Result<()> {
    let mut inside = connect(port).await?;
    inside.set_nodelay(true)?;
    copy_bidirectional(&mut outside, &mut inside).await.map(drop)
}

/// Services that say `localhost` listen on either family's loopback, or on both.
async fn connect(port: u16) -> io::Result<TcpStream> {
    match TcpStream::connect((IpAddr::from(Ipv4Addr::LOCALHOST), port)).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            TcpStream::connect((IpAddr::from(Ipv6Addr::LOCALHOST), port)).await.map_err(|_| error)
        }
        connected => connected,
    }
}
