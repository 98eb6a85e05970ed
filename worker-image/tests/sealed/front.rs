//! What lies between a worker and its board, and spoils it: a load balancer that loses answers, repeats requests, shows a page of
//! its own, holds calls for ever, is restarted.

use crate::Board;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, request::Parts};
use axum::response::{Html, IntoResponse as _, Response};
use protocol::worker::LogBatch;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mischief {
    /// Passes it on, and the answer back.
    None,
    /// Answers with a page of its own, whose status is 200.
    Page,
    /// Takes it and never answers.
    Hang,
    /// Passes it on, but breaks off in the middle of the answer.
    LoseAnswer,
    /// Passes it on twice.
    Twice,
}

type Choice = Arc<dyn Fn(&str, u64) -> Mischief + Send + Sync>;

/// A front that listens.
pub(crate) struct Front {
    address: SocketAddr,
    back: String,
    passing: Arc<Passing>,
    serving: JoinHandle<()>,
}

struct Passing {
    client: reqwest::Client,
    back: String,
    choose: Choice,
    count: Mutex<u64>,
    /// The first content that was sent for each `seq`, and those that were sent with another later.
    sent: Mutex<BTreeMap<u64, String>>,
    changed: Mutex<Vec<u64>>,
}

impl Front {
    /// Stands before `board`; `choose` is given each call's path and number.
    pub(crate) async fn start(board: &Board, choose: impl Fn(&str, u64) -> Mischief + Send + Sync + 'static) -> Self {
        tokio_rustls::rustls::crypto::ring::default_provider().install_default().ok();
        let passing = Arc::new(Passing {
            client: reqwest::Client::builder().tls_certs_only([]).build().unwrap(),
            back: board.url.clone(),
            choose: Arc::new(choose),
            count: Mutex::default(),
            sent: Mutex::default(),
            changed: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = serve(listener, Arc::clone(&passing));
        Self { address, back: board.url.clone(), passing, serving }
    }

    /// The board as one sees it from here.
    pub(crate) fn of(&self, board: &Board) -> Board {
        assert_eq!(board.url, self.back);
        let mut seen = board.clone();
        seen.url = format!("http://{}", self.address);
        seen
    }

    /// Ends, connections and all.
    pub(crate) async fn stop(&mut self) {
        self.serving.abort();
        (&mut self.serving).await.ok();
    }

    /// Listens again, where it did.
    pub(crate) async fn again(&mut self) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        self.serving = serve(socket.listen(64).unwrap(), Arc::clone(&self.passing));
    }

    /// The numbers of chunks that came with one content, and later with another.
    pub(crate) fn changed(&self) -> Vec<u64> {
        self.passing.changed.lock().unwrap().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn serve(listener: tokio::net::TcpListener, passing: Arc<Passing>) -> JoinHandle<()> {
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(pass).with_state(passing)).await.unwrap() })
}

async fn pass(State(passing): State<Arc<Passing>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap();
    passing.look(&parts, &body);
    let number = {
        let mut count = passing.count.lock().unwrap();
        *count += 1;
        *count
    };
    match (passing.choose)(parts.uri.path(), number) {
        Mischief::None => passing.on(&parts, body).await,
        Mischief::Page => (StatusCode::OK, Html("<h1>deploying</h1>")).into_response(),
        Mischief::Hang => std::future::pending().await,
        Mischief::LoseAnswer => {
            passing.on(&parts, body).await;
            let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
            Body::from_stream(broken).into_response()
        }
        Mischief::Twice => {
            passing.on(&parts, body.clone()).await;
            passing.on(&parts, body).await
        }
    }
}

impl Passing {
    async fn on(&self, parts: &Parts, body: Bytes) -> Response {
        let mut request = self.client.post(format!("{}{}", self.back, parts.uri.path())).body(body);
        for name in ["authorization", "content-type"] {
            request = request.header(name, &parts.headers[name]);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let headers = answer.headers().clone();
        let mut response = (status, answer.bytes().await.unwrap()).into_response();
        for name in ["content-type", "retry-after"] {
            headers.get(name).map(|value| response.headers_mut().insert(name, value.clone()));
        }
        response
    }

    fn look(&self, parts: &Parts, body: &Bytes) {
        if !parts.uri.path().ends_with("/logs") {
            return;
        }
        let batch: LogBatch = serde_json::from_slice(body).unwrap();
        for chunk in batch.chunks {
            let content = serde_json::to_string(&chunk).unwrap();
            let first = self.sent.lock().unwrap().entry(chunk.seq).or_insert_with(|| content.clone()).clone();
            if first != content {
                self.changed.lock().unwrap().push(chunk.seq);
            }
        }
    }
}
