//! Answers questions for names on 127.0.0.1:53 by passing them on, unread, to the resolver of the proxy's host, over TCP.

use super::relay::{Proxy, tunnel};
use crate::egress::RESOLVER;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// What every asker can take in one datagram.
const DATAGRAM_MAX_BYTES: usize = 512;
/// The fixed part of a message.
const HEAD_BYTES: usize = 12;
/// Askers ask again after this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers for ever.
pub(super) async fn answer(socket: UdpSocket, proxy: Proxy) {
    let socket = Arc::new(socket);
    let mut question = [0; 4096];
    loop {
        let Ok((length, asker)) = socket.recv_from(&mut question).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // One that finds no place is asked again by who asked.
        let Ok(place) = Arc::clone(&proxy.places).try_acquire_owned() else { continue };
        let (socket, proxy, question) = (Arc::clone(&socket), proxy.clone(), question[..length].to_vec());
        tokio::spawn(async move {
            timeout(PATIENCE, pass_on(&socket, asker, &proxy, &question)).await.ok();
            drop(place);
        });
    }
}

async fn pass_on(socket: &UdpSocket, asker: SocketAddr, proxy: &Proxy, question: &[u8]) -> io::Result<()> {
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    let mut resolver = tunnel(proxy.socket.path(), RESOLVER).await?;
    resolver.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let mut answer = vec![0; usize::from(resolver.read_u16().await?)];
    resolver.read_exact(&mut answer).await?;
    socket.send_to(&fitted(answer), asker).await.map(drop)
}

/// The answer, or, if it is too long for a datagram, what was asked with the word that there is more: then it is asked for by
/// TCP.
fn fitted(answer: Vec<u8>) -> Vec<u8> {
    const IS_CUT: u8 = 0b10;
    if answer.len() <= DATAGRAM_MAX_BYTES {
        return answer;
    }
    let (head, rest) = answer.split_at(HEAD_BYTES);
    // A name of labels ends with an empty one; its type and class are four bytes more.
    let question = rest.iter().position(|byte| *byte == 0).and_then(|end| rest.get(..end + 5)).unwrap_or_default();
    let mut cut = [head, question].concat();
    cut[2] |= IS_CUT;
    cut[6..HEAD_BYTES].fill(0);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_fits_is_passed_on_as_it_is() {
        assert_eq!(fitted(vec![7; 512]), vec![7; 512]);
    }

    #[test]
    fn a_longer_one_is_asked_for_again_by_tcp() {
        let question = [1, b'a', 0, 0, 1, 0, 1];
        let head = |flags, answers| [0x12, 0x34, flags, 0x80, 0, 1, 0, answers, 0, 0, 0, 0];
        let long = [&head(0x81, 40)[..], &question, &[7; 600]].concat();
        assert_eq!(fitted(long), [&head(0x83, 0)[..], &question].concat());
    }
}
