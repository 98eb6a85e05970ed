//! `/metrics` and `/healthz` on a port of this host, and the question that a container's health check asks there.

use crate::clock::Boot;
use crate::metrics::{Metrics, Standing};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most connections at once.
const CONNECTIONS_MAX: usize = 16;
/// The longest answer that is read.
const ANSWER_MAX_BYTES: u64 = 4096;

/// Answers whoever asks on `listener`, for ever. `standing` is asked anew each time.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, standing: Arc<dyn Fn() -> Standing + Send + Sync>) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, standing) = (Arc::clone(&metrics), Arc::clone(&standing));
        connections.spawn(async move {
            let service = service_fn(|request| {
                let response = answer(&request, &metrics, standing.as_ref());
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            timeout(PATIENCE, http.serve_connection(TokioIo::new(stream), service)).await.ok();
        });
        while connections.try_join_next().is_some() {}
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, standing: &dyn Fn() -> Standing) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.text(&standing(), Boot::now())),
        (&Method::GET, "/healthz") => match metrics.health(Boot::now()) {
            Ok(()) => (StatusCode::OK, "well\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        _ => (StatusCode::NOT_FOUND, "there are GET /metrics and GET /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let text = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// Asks the worker that serves at `address` whether it is well; what it says about it is returned.
///
/// # Errors
///
/// If it does not answer in time, or is not well.
pub fn ask(address: SocketAddr, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&reachable(address), patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, said) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(said.trim().to_owned());
    }
    Err(io::Error::other(if said.trim().is_empty() { "no answer of a worker's" } else { said.trim() }.to_owned()))
}

/// Who listens everywhere is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_is_well_says_so_and_one_that_is_gone_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let standing = || Standing { slots: 1, free_bytes: None };
        let serving = tokio::spawn(serve(listener, Arc::default(), Arc::new(standing)));
        let asked = tokio::task::spawn_blocking(move || ask(address, SOON)).await.unwrap();
        assert_eq!(asked.unwrap(), "well");
        serving.abort();
        serving.await.unwrap_err();
        assert!(tokio::task::spawn_blocking(move || ask(address, SOON)).await.unwrap().is_err());
    }

    #[test]
    fn who_listens_everywhere_is_asked_on_loopback() {
        let check = |address: &str, asked: &str| assert_eq!(reachable(address.parse().unwrap()).to_string(), asked);
        check("0.0.0.0:9", "127.0.0.1:9");
        check("[::]:9", "[::1]:9");
        check("127.0.0.2:9", "127.0.0.2:9");
    }
}
