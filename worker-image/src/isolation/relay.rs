//! The way to a build's proxy from where its network does not reach: a container has no network but loopback, and in it this.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Listens on loopback and carries every connection to the proxy's socket, for as long as this process lives. Returns the port.
///
/// # Errors
///
/// If it can't listen, or there can be no thread.
pub(super) fn serve(socket: PathBuf) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().spawn(move || {
        for client in listener.incoming().flatten() {
            // Without a thread to spare, the client sees its connection closed.
            carry(&client, &socket).ok();
        }
    })?;
    Ok(port)
}

fn carry(client: &TcpStream, socket: &Path) -> io::Result<()> {
    let proxy = UnixStream::connect(socket)?;
    let (mut from_client, mut to_client) = (client.try_clone()?, client.try_clone()?);
    let (mut from_proxy, mut to_proxy) = (proxy.try_clone()?, proxy);
    std::thread::Builder::new().spawn(move || {
        io::copy(&mut from_client, &mut to_proxy).ok();
        to_proxy.shutdown(Shutdown::Write).ok();
    })?;
    std::thread::Builder::new().spawn(move || {
        io::copy(&mut from_proxy, &mut to_client).ok();
        to_client.shutdown(Shutdown::Both).ok();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_sent_to_the_port_reaches_the_socket_and_back_until_both_are_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("proxy");
        let proxy = UnixListener::bind(&path).unwrap();
        let port = serve(path).unwrap();
        std::thread::spawn(move || {
            let (mut client, mut said) = (proxy.accept().unwrap().0, String::new());
            client.read_to_string(&mut said).unwrap();
            write!(client, "heard {said}").unwrap();
        });
        let (mut client, mut answer) = (TcpStream::connect(("127.0.0.1", port)).unwrap(), String::new());
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "heard hello");
    }
}
