//! Lets the containers of a task reach some of the host's ports of 127.0.0.1, and nothing else there.
//!
//! A socket stays in the network in which it was made: one thread enters the task's network to open them, and is gone.

use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Ends with what it carries when it is dropped.
#[derive(Debug)]
pub(super) struct Reach {
    _carrying: JoinSet<()>,
}

impl Reach {
    /// Opens `ports` in the network of the process `pid`.
    pub(super) async fn open(pid: i64, ports: Vec<u16>) -> io::Result<Self> {
        let opened = std::thread::spawn(move || listeners(pid, &ports)).join();
        let opened = opened.map_err(|_| io::Error::other("the thread that opens ports ended"))??;
        let mut carrying = JoinSet::new();
        for (port, listener) in opened {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            carrying.spawn(carry(port, listener));
        }
        Ok(Self { _carrying: carrying })
    }
}

fn listeners(pid: i64, ports: &[u16]) -> io::Result<Vec<(u16, TcpListener)>> {
    setns(File::open(format!("/proc/{pid}/ns/net"))?, CloneFlags::CLONE_NEWNET)?;
    ports.iter().map(|port| Ok((*port, TcpListener::bind((Ipv4Addr::LOCALHOST, *port))?))).collect()
}

async fn carry(port: u16, listener: tokio::net::TcpListener) {
    let mut carried = JoinSet::new();
    while let Ok((mut inside, _)) = listener.accept().await {
        while carried.try_join_next().is_some() {}
        carried.spawn(async move {
            // Where nobody listens, the connection ends: the other side sees a board that is not there.
            if let Ok(mut outside) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
    }
}
