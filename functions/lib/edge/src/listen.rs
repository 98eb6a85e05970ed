//! A socket that nobody can hold by saying nothing.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a request's head may take to come whole, counted from when the connection is free for it: so it is also how long a
/// connection is kept between two requests. Longer than the 90 s that clients' pools keep an idle one, so that it is the client who
/// closes it: a request never meets a connection that is being closed under it.
pub const HEAD_WAIT: Duration = Duration::from_secs(120);

/// Serves `app` until it is dropped; connections that are open then end with their runtime. One that has not brought a whole head
/// within `head_wait` is closed, be it half a head or none.
pub async fn serve(mut listener: TcpListener, app: Router, head_wait: Duration) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_wait);
    loop {
        // The trait's: it waits where the process has no more descriptors, and returns no error.
        let (stream, _) = axum::serve::Listener::accept(&mut listener).await;
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone()));
        tokio::spawn(async move {
            // A client that broke off: nobody is there to be told.
            let _ = connection.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(600);
    /// What a test that fails waits for.
    const PATIENCE: Duration = Duration::from_secs(60);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// A server that takes `answer` to answer.
    async fn serving(head_wait: Duration, answer: Duration) -> SocketAddr {
        let app = Router::new().route(
            "/",
            get(move || async move {
                tokio::time::sleep(answer).await;
                "well"
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, app, head_wait));
        address
    }

    async fn said(address: SocketAddr, text: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(text).await.expect("said");
        stream
    }

    async fn is_closed(mut stream: TcpStream) {
        let mut heard = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("it is closed").ok();
        assert_eq!(String::from_utf8_lossy(&heard), "", "nothing was asked");
    }

    async fn is_answered(stream: &mut TcpStream) {
        let mut heard = Vec::new();
        while !heard.ends_with(b"well") {
            let read = timeout(PATIENCE, stream.read_buf(&mut heard)).await.expect("it answers").expect("heard");
            assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&heard));
        }
    }

    #[tokio::test]
    async fn half_a_request_line_or_head_or_nothing_at_all_holds_no_connection() {
        let address = serving(SHORT, Duration::ZERO).await;
        for text in ["GET /api", "GET / HTTP/1.1\r\nhost: a\r\nauthoriz", ""] {
            is_closed(said(address, text.as_bytes()).await).await;
        }
    }

    #[tokio::test]
    async fn a_head_that_comes_byte_by_byte_gains_no_time() {
        let mut stream = said(serving(SHORT, Duration::ZERO).await, b"GET /").await;
        let drip = async {
            while stream.write_all(b"a").await.is_ok() {
                tokio::time::sleep(SHORT / 10).await
            }
        };
        timeout(PATIENCE, drip).await.expect("it is closed");
    }

    #[tokio::test]
    async fn a_connection_between_two_requests_is_kept_so_long_and_no_longer() {
        let address = serving(SHORT, Duration::ZERO).await;
        let mut idle = said(address, REQUEST).await;
        is_answered(&mut idle).await;
        is_closed(idle).await;
        let mut kept = said(serving(LONG, Duration::ZERO).await, REQUEST).await;
        is_answered(&mut kept).await;
        tokio::time::sleep(SHORT * 2).await;
        kept.write_all(REQUEST).await.expect("said");
        is_answered(&mut kept).await;
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_than_a_head() {
        let mut stream = said(serving(SHORT, SHORT * 3).await, REQUEST).await;
        is_answered(&mut stream).await;
    }
}
