//! Asks a service whether it is there: a request for its health path, whose answer counts below 400.

use super::forward::Door;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// From its start a service is asked this often, and then less and less: most answer soon.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// So many answers in a row may fail before a service counts as silent.
const MISSES_MAX: u32 = 3;
/// The longest status line.
const LINE_MAX_BYTES: usize = 1024;

/// What is found out about a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It answers.
    Answers,
    /// It does not, or not any more, and what came instead. Nothing is found out after this.
    Silent(String),
}

/// What is asked, where, and how often.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) door: Door,
    /// The service's port, for the header `host`.
    pub(super) port: u16,
    pub(super) path: String,
    /// How long the first answer may take to come.
    pub(super) start: Duration,
    /// How often it is asked after that.
    pub(super) every: Duration,
}

impl Health {
    /// Begins to ask; ends with `asking`.
    pub(super) fn watch(self, asking: &mut JoinSet<()>) -> Receiver<Found> {
        let (tell, found) = channel(1);
        asking.spawn(self.ask_on(tell));
        found
    }

    async fn ask_on(self, tell: Sender<Found>) {
        if let Some(silent) = self.until_it_answers().await {
            tell.send(silent).await.ok();
            return;
        }
        tell.send(Found::Answers).await.ok();
        let silent = self.until_it_does_not().await;
        tell.send(silent).await.ok();
    }

    /// `None` once it answers.
    async fn until_it_answers(&self) -> Option<Found> {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let left = self.start.saturating_sub(begun.elapsed());
            let why = match timeout(left.max(FIRST_PAUSE), self.ask()).await {
                Ok(Ok(())) => return None,
                Ok(Err(why)) => why,
                Err(_) => "no answer".into(),
            };
            if begun.elapsed() >= self.start {
                let (path, seconds) = (&self.path, self.start.as_secs_f64());
                return Some(Found::Silent(format!("{path} did not answer within {seconds} s: {why}")));
            }
            sleep(pause).await;
            pause = (pause * 5 / 4).min(PAUSE_MAX);
        }
    }

    async fn until_it_does_not(&self) -> Found {
        let mut misses = 0;
        loop {
            sleep(self.every).await;
            match self.ask().await {
                Ok(()) => misses = 0,
                Err(_) if misses + 1 < MISSES_MAX => misses += 1,
                Err(why) => {
                    return Found::Silent(format!("{} failed {MISSES_MAX} times in a row: {why}", self.path));
                }
            }
        }
    }

    /// Asks once; what was wrong if it is not well.
    async fn ask(&self) -> Result<(), String> {
        let line = match timeout(PATIENCE, self.status_line()).await {
            Ok(Ok(line)) => line,
            Ok(Err(error)) if is_closed(error.kind()) => Vec::new(),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("no answer in time".into()),
        };
        judge(&line)
    }

    async fn status_line(&self) -> io::Result<Vec<u8>> {
        let mut service = self.door.connect().await?;
        let head = format!(
            "GET {} HTTP/1.1\r\nhost: localhost:{}\r\nuser-agent: callboard\r\naccept: */*\r\nconnection: close\r\n\r\n",
            self.path, self.port
        );
        service.write_all(head.as_bytes()).await?;
        let (mut line, mut part) = (Vec::new(), [0; 256]);
        while line.len() < LINE_MAX_BYTES && !line.contains(&b'\n') {
            match service.read(&mut part).await? {
                0 => break,
                length => line.extend_from_slice(&part[..length]),
            }
        }
        Ok(line)
    }
}

/// Of a door that is not open yet, or behind which nobody is.
fn is_closed(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    [BrokenPipe, ConnectionRefused, ConnectionReset, NotFound].contains(&kind)
}

/// Whether a status line is that of a service that is well.
fn judge(line: &[u8]) -> Result<(), String> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/"));
    match words.next().and_then(|word| word.parse::<u16>().ok()).filter(|_| is_http) {
        Some(200..400) => Ok(()),
        Some(status) => Err(format!("status {status}")),
        None if line.is_empty() => Err("nothing listens on its port, or it closes connections".into()),
        None => Err("the answer is not HTTP/1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::net::UnixListener;
    use tokio::sync::Semaphore;

    #[test]
    fn a_service_is_well_below_400() {
        for line in ["HTTP/1.1 200 OK\r\n", "HTTP/1.0 204\r\n", "HTTP/1.1 399 x\r\n", "HTTP/1.1 302 Found\r\n"] {
            assert_eq!(judge(line.as_bytes()), Ok(()), "{line}");
        }
        for line in
            ["HTTP/1.1 400 Bad", "HTTP/1.1 503 x\r\n", "HTTP/1.1 100 Continue", "HTTP/1.1 abc", "SSH-2.0 200", ""]
        {
            assert!(judge(line.as_bytes()).is_err(), "{line}");
        }
    }

    struct Scene {
        found: Receiver<Found>,
        service: UnixListener,
        _asking: JoinSet<()>,
        _directory: tempfile::TempDir,
    }

    fn scene(start: Duration) -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("door");
        let service = UnixListener::bind(&socket).unwrap();
        let door = Door::of(&socket, Arc::new(Semaphore::new(1))).unwrap();
        let every = Duration::from_millis(1);
        let mut asking = JoinSet::new();
        let found = Health { door, port: 8080, path: "/up".into(), start, every }.watch(&mut asking);
        Scene { found, service, _asking: asking, _directory: directory }
    }

    impl Scene {
        async fn answer(&self, status: &str) {
            let (mut asked, _) = self.service.accept().await.unwrap();
            let mut head = vec![0; 1024];
            let length = asked.read(&mut head).await.unwrap();
            assert!(head[..length].starts_with(b"GET /up HTTP/1.1\r\nhost: localhost:8080\r\n"));
            asked.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn it_answers_once_it_does_and_is_silent_after_three_misses_in_a_row() {
        let mut scene = scene(Duration::from_secs(30));
        scene.answer("503").await;
        scene.answer("200").await;
        assert_eq!(scene.found.recv().await, Some(Found::Answers));
        for status in ["500", "500", "200", "500", "500"] {
            scene.answer(status).await;
        }
        scene.answer("502").await;
        let why = "/up failed 3 times in a row: status 502".into();
        assert_eq!(scene.found.recv().await, Some(Found::Silent(why)));
    }

    #[tokio::test]
    async fn one_that_never_answers_is_silent_after_its_time() {
        let mut scene = scene(Duration::from_millis(50));
        let Some(Found::Silent(why)) = scene.found.recv().await else { panic!("it answers") };
        assert!(why.starts_with("/up did not answer within 0.05 s: "), "{why}");
        drop(scene.service);
    }
}
