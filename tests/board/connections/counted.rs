//! A stretch of wire between a board and its server that counts what the server says it is ready after.

use crate::Board;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// `ReadyForQuery`: once for each `Sync`, which is once for each time that the client waits.
const READY: u8 = b'Z';

pub(super) struct Counted {
    /// The server's address by this way.
    pub(super) url: String,
    ready: Arc<AtomicUsize>,
}

impl Counted {
    pub(super) async fn before(board: &Board) -> Self {
        let options = PgConnectOptions::from_str(&board.shell.config.database_url).expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let url = callboard_tests::url(&options.clone().port(port).ssl_mode(PgSslMode::Disable));
        let ready = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(listener, options.get_port(), Arc::clone(&ready)));
        Self { url, ready }
    }

    /// How often the server was waited for.
    pub(super) fn answers(&self) -> usize {
        self.ready.load(Relaxed)
    }
}

async fn serve(listener: TcpListener, port: u16, ready: Arc<AtomicUsize>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server answers");
        let ((mut asks, hears), (answers, mut asked)) = (client.into_split(), server.into_split());
        tokio::spawn(async move { copy(&mut asks, &mut asked).await });
        tokio::spawn(count(answers, hears, Arc::clone(&ready)));
    }
}

/// Each message is a letter, its length with that of the length itself, and the rest. Ends with the connection.
async fn count(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, ready: Arc<AtomicUsize>) -> Option<()> {
    loop {
        let letter = from.read_u8().await.ok()?;
        let length = from.read_u32().await.ok()?;
        let mut rest = vec![0; length as usize - 4];
        from.read_exact(&mut rest).await.ok()?;
        if letter == READY {
            ready.fetch_add(1, Relaxed);
        }
        let head = [[letter].as_slice(), &length.to_be_bytes(), &rest].concat();
        to.write_all(&head).await.ok()?;
    }
}
