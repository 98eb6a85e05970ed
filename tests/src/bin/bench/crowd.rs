//! Many connections on one thread, a write and a read for each call: the client shares the processors with what it measures, so it
//! is to cost no more than pgbench does. Requests are bytes that are made once; in each only an id is another.

use crate::http;
use crate::load;
use anyhow::{Context as _, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::HashSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long calls are made before they are counted: connections open, statements are planned.
const WARM_UP: Duration = Duration::from_secs(1);
/// With no answer for so long, the server is taken for stuck.
const PATIENCE_MS: u16 = 30_000;
/// What an answer is read into: more than any has.
const ANSWER_MAX: usize = 16 * 1024;
/// What stands in a request before it has an id.
const NO_ID: Uuid = Uuid::nil();

/// What a load came to.
pub struct Done {
    /// Pairs of a claim and a complete within the span.
    pub pairs: usize,
    /// All builds that were taken and ended, those of the warm-up too.
    pub builds: usize,
}

/// Claims and completes over so many connections for a span after the warm-up.
///
/// # Errors
///
/// If an answer is not 200, there is none, or a build was given out twice.
pub fn pairs(address: SocketAddr, token: &str, connections: usize, span: Duration) -> anyhow::Result<Done> {
    let (epoll, mut workers) = (Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, Vec::new());
    for number in 0..connections {
        let worker = Worker::connect(address, token)?;
        epoll.add(&worker.stream, EpollEvent::new(EpollFlags::EPOLLIN, u64::try_from(number)?))?;
        workers.push(worker);
    }
    let from = Instant::now() + WARM_UP;
    let (until, mut open, mut pairs) = (from + span, connections, 0);
    for worker in &mut workers {
        worker.claim()?;
    }
    let mut events = vec![EpollEvent::empty(); connections];
    while open > 0 {
        let ready = epoll.wait(&mut events, EpollTimeout::from(PATIENCE_MS))?;
        anyhow::ensure!(ready > 0, "no answer for {PATIENCE_MS} ms");
        let now = Instant::now();
        for event in &events[..ready] {
            let worker = &mut workers[usize::try_from(event.data())?];
            match worker.receive()? {
                Came::Part => {}
                Came::Job(build) => worker.complete(build)?,
                Came::End => {
                    pairs += usize::from(now >= from && now < until);
                    if now < until { worker.claim()? } else { open -= 1 }
                }
            }
        }
    }
    done(pairs, workers)
}

fn done(pairs: usize, workers: Vec<Worker>) -> anyhow::Result<Done> {
    let taken: usize = workers.iter().map(|worker| worker.builds.len()).sum();
    let builds: HashSet<Uuid> = workers.into_iter().flat_map(|worker| worker.builds).collect();
    anyhow::ensure!(builds.len() == taken, "{} builds were claimed twice", taken - builds.len());
    Ok(Done { pairs, builds: taken })
}

/// What has come of an answer.
enum Came {
    /// Not all of it.
    Part,
    /// A build to run.
    Job(Uuid),
    /// The end of a build was taken.
    End,
}

/// A worker that runs nothing.
struct Worker {
    stream: TcpStream,
    claim: Request,
    complete: Request,
    /// The last claim's id; the next one's is one more.
    claim_id: u128,
    asked: Asked,
    answer: Vec<u8>,
    length: usize,
    builds: Vec<Uuid>,
}

#[derive(Clone, Copy)]
enum Asked {
    Claim,
    Complete,
}

impl Worker {
    fn connect(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            claim: Request::new(token, load::CLAIM_PATH, &load::claim_body(&NO_ID))?,
            complete: Request::new(token, &load::complete_path(&NO_ID), load::REPORT)?,
            claim_id: Uuid::new_v4().as_u128(),
            asked: Asked::Claim,
            answer: vec![0; ANSWER_MAX],
            length: 0,
            builds: Vec::new(),
        })
    }

    fn claim(&mut self) -> anyhow::Result<()> {
        self.claim_id = self.claim_id.wrapping_add(1);
        self.asked = Asked::Claim;
        self.claim.send(&mut self.stream, Uuid::from_u128(self.claim_id))
    }

    fn complete(&mut self, build: Uuid) -> anyhow::Result<()> {
        self.builds.push(build);
        self.asked = Asked::Complete;
        self.complete.send(&mut self.stream, build)
    }

    /// Reads once.
    fn receive(&mut self) -> anyhow::Result<Came> {
        match self.stream.read(&mut self.answer[self.length..]) {
            Ok(0) => bail!("the server hung up, or an answer is longer than {ANSWER_MAX} bytes"),
            Ok(more) => self.length += more,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(answer) = http::whole(&self.answer[..self.length])? else { return Ok(Came::Part) };
        self.length = 0;
        Ok(match self.asked {
            Asked::Claim => Came::Job(http::field(answer.ok("claim")?, "build_id")?.parse()?),
            Asked::Complete => {
                anyhow::ensure!(http::field(answer.ok("complete")?, "status")? == "success", "complete: not a success");
                Came::End
            }
        })
    }
}

/// A request's bytes, and where the id stands in them.
struct Request {
    bytes: Vec<u8>,
    id_at: usize,
}

impl Request {
    /// A request in which [`NO_ID`] is the place of the id.
    fn new(token: &str, path: &str, body: &str) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        http::write(&mut bytes, token, path, body.as_bytes());
        let id_at = http::find(&bytes, NO_ID.to_string().as_bytes()).context("a request without an id")?;
        Ok(Self { bytes, id_at })
    }

    fn with(&mut self, id: Uuid) -> &[u8] {
        id.hyphenated().encode_lower(&mut self.bytes[self.id_at..]);
        &self.bytes
    }

    /// Sends it with another id. It is far smaller than what a socket takes at once.
    fn send(&mut self, stream: &mut TcpStream, id: Uuid) -> anyhow::Result<()> {
        let bytes = self.with(id);
        anyhow::ensure!(stream.write(bytes)? == bytes.len(), "a request was sent in part");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_but_for_its_id() {
        let mut request = Request::new("t", &load::complete_path(&NO_ID), "{}").unwrap();
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(u128::MAX));
        for id in [first, second, first] {
            let mut wanted = Vec::new();
            http::write(&mut wanted, "t", &load::complete_path(&id), b"{}");
            assert_eq!(request.with(id), wanted);
        }
        assert!(Request::new("t", "/builds", "{}").is_err());
    }
}
