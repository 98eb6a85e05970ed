//! Carries connections from the bound port to the service's door: as many as there are places, the others wait in the kernel's
//! queue. Neither side is read from faster than the other takes, and an end of one direction does not end the other.

use crate::egress::Address;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::io;
use std::net::TcpListener as Listener;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Where connections go.
#[derive(Clone, Debug)]
pub(super) struct Door {
    address: Arc<Address>,
    /// A place for each connection that may be open at once.
    places: Arc<Semaphore>,
}

impl Door {
    pub(super) fn of(path: &Path, places: Arc<Semaphore>) -> io::Result<Self> {
        Ok(Self { address: Arc::new(Address::of(path)?), places })
    }

    /// Connects to the service. Who is inside may have put something else in its place: only a socket is taken, and no link to one of
    /// this host's.
    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        let how = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let socket = open(self.address.path(), how, Mode::empty())?;
        if SFlag::from_bits_truncate(fstat(&socket)?.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
            return Err(io::Error::other("there is no socket where its way in should be"));
        }
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
    }
}

/// A port that is bound, as long as this lives; connections that it took live on.
#[derive(Debug)]
pub(super) struct Forward(JoinHandle<()>);

impl Forward {
    pub(super) fn start(listener: Listener, door: Door) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        Ok(Self(tokio::spawn(accept(listener, door))))
    }

    /// Lets go of the port; returns once nothing listens there.
    pub(super) async fn end(self) {
        self.0.abort();
        self.0.await.ok();
    }
}

async fn accept(listener: TcpListener, door: Door) {
    loop {
        let Ok(place) = Arc::clone(&door.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((user, _)) => {
                let door = door.clone();
                tokio::spawn(async move {
                    carry(user, &door).await.ok();
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn carry(mut user: TcpStream, door: &Door) -> io::Result<()> {
    user.set_nodelay(true)?;
    let mut service = door.connect().await?;
    copy_bidirectional(&mut user, &mut service).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;
    use tokio::time::timeout;

    struct Scene {
        port: SocketAddr,
        service: UnixListener,
        forward: Forward,
        directory: tempfile::TempDir,
    }

    fn scene(places: usize) -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("door");
        let service = UnixListener::bind(&socket).unwrap();
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap();
        let door = Door::of(&socket, Arc::new(Semaphore::new(places))).unwrap();
        Scene { port, service, forward: Forward::start(listener, door).unwrap(), directory }
    }

    #[tokio::test]
    async fn who_has_said_all_still_hears_the_answer() {
        let scene = scene(1);
        let mut user = TcpStream::connect(scene.port).await.unwrap();
        user.write_all(b"ask").await.unwrap();
        user.shutdown().await.unwrap();
        let (mut inside, _) = scene.service.accept().await.unwrap();
        let mut asked = Vec::new();
        inside.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, b"ask");
        inside.write_all(b"answer").await.unwrap();
        drop(inside);
        let mut answer = Vec::new();
        user.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn a_service_that_does_not_read_holds_its_user_and_not_our_memory() {
        let scene = scene(1);
        let mut user = TcpStream::connect(scene.port).await.unwrap();
        let (_inside, _) = scene.service.accept().await.unwrap();
        let block = vec![0; 1 << 20];
        let flood = async {
            for _ in 0..64 {
                user.write_all(&block).await.unwrap();
            }
        };
        assert!(timeout(Duration::from_millis(500), flood).await.is_err(), "64 MiB that nobody reads are somewhere");
    }

    #[tokio::test]
    async fn with_every_place_taken_the_next_waits_and_gets_its_turn() {
        let scene = scene(1);
        let first = TcpStream::connect(scene.port).await.unwrap();
        let (inside, _) = scene.service.accept().await.unwrap();
        let mut second = TcpStream::connect(scene.port).await.unwrap();
        second.write_all(b"2").await.unwrap();
        assert!(timeout(Duration::from_millis(200), scene.service.accept()).await.is_err());
        drop((first, inside));
        let (mut inside, _) = scene.service.accept().await.unwrap();
        assert_eq!(inside.read_u8().await.unwrap(), b'2');
    }

    #[tokio::test]
    async fn a_link_to_another_socket_of_this_host_is_not_followed() {
        let scene = scene(1);
        let link = scene.directory.path().join("link");
        std::os::unix::fs::symlink(scene.directory.path().join("door"), &link).unwrap();
        let places = Arc::new(Semaphore::new(1));
        assert!(Door::of(&link, Arc::clone(&places)).unwrap().connect().await.is_err());
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "").unwrap();
        assert!(Door::of(&link, Arc::clone(&places)).unwrap().connect().await.is_err());
        assert!(Door::of(&scene.directory.path().join("door"), places).unwrap().connect().await.is_ok());
    }

    #[tokio::test]
    async fn connections_live_on_when_the_port_is_let_go() {
        let scene = scene(2);
        let mut user = TcpStream::connect(scene.port).await.unwrap();
        let (mut inside, _) = scene.service.accept().await.unwrap();
        scene.forward.end().await;
        assert!(TcpStream::connect(scene.port).await.is_err());
        inside.write_all(b"x").await.unwrap();
        assert_eq!(user.read_u8().await.unwrap(), b'x');
    }
}
