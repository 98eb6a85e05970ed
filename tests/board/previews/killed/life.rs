//! A preview that runs, with a user whose connection is open.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use uuid::Uuid;

pub(super) struct Life {
    pub(super) build: Uuid,
    /// As paths have it.
    pub(super) id: String,
    port: u16,
    /// The processes that keep it: one.
    pub(super) keepers: Vec<u32>,
    user: BufReader<TcpStream>,
}

impl Life {
    pub(super) async fn begin((build, id): (Uuid, String), port: u16, keepers: Vec<u32>) -> Self {
        assert_eq!(keepers.len(), 1, "{keepers:?}");
        let mut user = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.expect("connected"));
        user.write_all(b"GET /echo HTTP/1.1\r\n\r\n").await.expect("said");
        let mut said = String::new();
        while said != "\r\n" {
            said.clear();
            assert_ne!(user.read_line(&mut said).await.expect("heard"), 0, "the service closed the connection");
        }
        Self { build, id, port, keepers, user }
    }

    pub(super) async fn is_used(&mut self, after: &str) {
        self.user.write_all(format!("{after}\n").as_bytes()).await.expect("said");
        let mut said = String::new();
        self.user.read_line(&mut said).await.expect("heard");
        assert_eq!(said, format!("{after}\n"), "the connection that is open");
        let mut another = TcpStream::connect(("127.0.0.1", self.port)).await.expect("connected");
        another.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("said");
        let mut answer = String::new();
        another.read_to_string(&mut answer).await.expect("heard");
        assert!(answer.ends_with("hello from first\n"), "after {after}: {answer}");
    }

    /// Its user sees its end, and its port could be bound.
    pub(super) async fn sees_its_end(mut self) {
        assert_eq!(self.user.read_line(&mut String::new()).await.unwrap_or(0), 0);
        std::net::TcpListener::bind(("127.0.0.1", self.port)).expect("nobody has its port");
    }
}
