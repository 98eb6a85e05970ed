//! A billing service for tests: it answers as it should, or misbehaves on demand, each workspace in its own way.
//!
//! It speaks HTTP by hand, so that it can also break it. Nothing in it sleeps: what is slow waits until the test lets it go.

use edge::config::BillingService;
use protocol::worker::Secret;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// The token that it wants.
pub const TOKEN: &str = "billing-token-of-the-tests";

/// How long a test waits for questions that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// How it answers for a workspace.
#[derive(Clone, Debug)]
pub enum Manner {
    /// 200, `application/json`, and this body, whatever it is.
    Says(String),
    /// This status, media type and body.
    Answers(u16, &'static str, String),
    /// Like `Says`, once the test lets it go; the body is the one it had when it was asked.
    Slow(String),
    /// Takes the question and says nothing, ever.
    Hangs,
    /// Begins a body and gives its last byte never.
    Drips,
    /// Closes the connection in the middle of the body.
    ClosesMidBody,
    /// Closes the connection without a word.
    Closes,
    /// A body without an end.
    IsEndless,
    /// Says that the body will be larger than anybody wants.
    AnnouncesTooMuch,
    /// Points to another of its addresses, where a plan would be.
    Redirects,
    /// Something that is not HTTP.
    Babbles,
}

/// The body of a plan.
#[must_use]
pub fn plan(minutes_per_month: u32, running_max: u32, pending_max: u32) -> String {
    format!(
        "{{\"minutes_per_month\": {minutes_per_month}, \"build_seconds_max\": 1800, \"running_max\": {running_max}, \
         \"pending_max\": {pending_max}, \"name\": \"Gold\"}}"
    )
}

#[derive(Default)]
struct Desk {
    manners: BTreeMap<String, Manner>,
    questions: BTreeMap<String, usize>,
    others: usize,
    open: usize,
    open_max: usize,
}

struct Shared {
    desk: Mutex<Desk>,
    asked: watch::Sender<usize>,
    let_go: Semaphore,
}

impl Shared {
    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().expect("the desk")
    }
}

/// A running service.
pub struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts one that knows no workspace.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn start() -> Self {
        let shared = Shared { desk: Mutex::default(), asked: watch::Sender::new(0), let_go: Semaphore::new(0) };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { address, shared: Arc::new(shared), task: None };
        service.restart().await;
        service
    }

    /// Listens again where it did before it was stopped.
    ///
    /// # Panics
    ///
    /// If the port is taken.
    pub async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("a port");
        self.address = listener.local_addr().expect("an address");
        let shared = Arc::clone(&self.shared);
        self.task = Some(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        }));
    }

    /// Closes its port.
    pub async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    /// The settings of a board that asks it.
    #[must_use]
    pub fn settings(&self, timeout: Duration) -> BillingService {
        BillingService { url: format!("http://{}/v1", self.address), token: Secret(TOKEN.into()), timeout }
    }

    /// How it answers for a workspace from now on.
    pub fn set(&self, slug: &str, manner: Manner) {
        self.shared.desk().manners.insert(slug.to_owned(), manner);
    }

    /// How often it was asked for a workspace's plan.
    #[must_use]
    pub fn asked(&self, slug: &str) -> usize {
        self.shared.desk().questions.get(slug).copied().unwrap_or(0)
    }

    /// Waits until it was asked for a workspace's plan `times` times in all.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub async fn until_asked(&self, slug: &str, times: usize) {
        self.until(|| self.asked(slug) >= times).await;
    }

    /// Waits until `questions` are open at once.
    ///
    /// # Panics
    ///
    /// If they never are.
    pub async fn until_open(&self, questions: usize) {
        self.until(|| self.shared.desk().open >= questions).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let mut asked = self.shared.asked.subscribe();
        let so = tokio::time::timeout(PATIENCE, asked.wait_for(|_| is_so())).await;
        so.expect("the questions come").expect("the service is there");
    }

    /// Lets `answers` slow ones go.
    pub fn let_go(&self, answers: usize) {
        self.shared.let_go.add_permits(answers);
    }

    /// How many questions were open at once, at most.
    #[must_use]
    pub fn open_max(&self) -> usize {
        self.shared.desk().open_max
    }

    /// How many requests came that were no question for a plan with the right token.
    #[must_use]
    pub fn others(&self) -> usize {
        self.shared.desk().others
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(head) = head(&mut stream).await else { return };
    let Some(slug) = question(&head) else {
        shared.desk().others += 1;
        let _ = stream.write_all(&whole(401, "application/json", "{}")).await;
        return;
    };
    let manner = {
        let mut desk = shared.desk();
        *desk.questions.entry(slug.clone()).or_default() += 1;
        desk.open += 1;
        desk.open_max = desk.open_max.max(desk.open);
        desk.manners.get(&slug).cloned()
    };
    shared.asked.send_modify(|asked| *asked += 1);
    let unknown = Manner::Answers(404, "application/json", "{}".into());
    let _ = behave(&mut stream, manner.unwrap_or(unknown), &shared).await;
    shared.desk().open -= 1;
}

async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The workspace that a well-formed question is about.
fn question(head: &str) -> Option<String> {
    let slug = head.strip_prefix("GET /v1/workspaces/")?.split_once("/plan HTTP/1.1\r\n")?.0;
    let bearer = format!("\r\nauthorization: Bearer {TOKEN}\r\n");
    head.contains(&bearer).then(|| slug.to_owned())
}

fn whole(status: u16, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The head of an answer whose body goes on until the connection ends.
const OPEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

async fn behave(stream: &mut TcpStream, manner: Manner, shared: &Shared) -> std::io::Result<()> {
    match manner {
        Manner::Says(body) => stream.write_all(&whole(200, "application/json", &body)).await,
        Manner::Answers(status, kind, body) => stream.write_all(&whole(status, kind, &body)).await,
        Manner::Slow(body) => {
            shared.let_go.acquire().await.expect("never closed").forget();
            stream.write_all(&whole(200, "application/json", &body)).await
        }
        Manner::Hangs => until_gone(stream).await,
        Manner::Drips => {
            stream.write_all(OPEN).await?;
            stream.write_all(b"1\r\n{\r\n").await?;
            until_gone(stream).await
        }
        Manner::ClosesMidBody => {
            let answer = whole(200, "application/json", &plan(100, 4, 100));
            stream.write_all(&answer[..answer.len() - 10]).await
        }
        Manner::Closes => Ok(()),
        Manner::IsEndless => {
            stream.write_all(OPEN).await?;
            let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
            loop {
                stream.write_all(chunk.as_bytes()).await?;
            }
        }
        Manner::AnnouncesTooMuch => {
            stream
                .write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999999999999\r\n\r\n{",
                )
                .await?;
            until_gone(stream).await
        }
        Manner::Redirects => {
            let to = "HTTP/1.1 302 Found\r\nlocation: /v1/workspaces/elsewhere/plan\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(to.as_bytes()).await
        }
        Manner::Babbles => stream.write_all(b"* OK IMAP4rev1 ready\r\n").await,
    }
}

/// Until the other side gives up.
async fn until_gone(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte).await? > 0 {}
    Ok(())
}
