//! A client that costs little: it shares the processors with what it measures. One connection, one call at a time, bytes in
//! and bytes out.

use anyhow::{Context as _, bail};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept.
pub struct Connection {
    stream: TcpStream,
    token: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// A status and a body.
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// The body of a 200.
    ///
    /// # Errors
    ///
    /// Any other answer, in words.
    pub fn ok(&self, call: &str) -> anyhow::Result<&[u8]> {
        match self.status {
            200 | 201 => Ok(self.body),
            204 => bail!("{call}: 204, nothing to do; give more --builds-per-second"),
            other => bail!("{call}: {other} {}", String::from_utf8_lossy(self.body)),
        }
    }
}

impl Connection {
    /// Connects; all calls bear `token`.
    pub async fn open(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, token: token.to_owned(), request: Vec::new(), answer: Vec::new() })
    }

    /// Posts JSON.
    ///
    /// # Errors
    ///
    /// If there is no whole answer.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.request.clear();
        write(&mut self.request, &self.token, path, body);
        self.stream.write_all(&self.request).await?;
        self.receive().await
    }

    async fn receive(&mut self) -> anyhow::Result<Answer<'_>> {
        self.answer.clear();
        while whole(&self.answer)?.is_none() {
            self.fill().await?;
        }
        whole(&self.answer)?.context("an answer that was whole")
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.answer).await? {
            0 => bail!("the server hung up"),
            _ => Ok(()),
        }
    }
}

/// Writes a POST of JSON.
pub fn write(request: &mut Vec<u8>, token: &str, path: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: board\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    request.extend_from_slice(head.as_bytes());
    request.extend_from_slice(body);
}

/// The answer that `bytes` begin with; `None` if not all of it is there.
///
/// # Errors
///
/// If it is not one that can be read.
pub fn whole(bytes: &[u8]) -> anyhow::Result<Option<Answer<'_>>> {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let (head, rest) = bytes.split_at(end + 4);
    let (status, length) = read_head(head)?;
    Ok(rest.get(..length).map(|body| Answer { status, body }))
}

/// Where `wanted` stands first.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The status and the body's length.
fn read_head(head: &[u8]) -> anyhow::Result<(u16, usize)> {
    let text = std::str::from_utf8(head)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12)).and_then(|digits| digits.parse().ok());
    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!("an answer in pieces, which this client does not read");
        }
    }
    Ok((status.context("not HTTP")?, length))
}

/// The value of a string field of a JSON object, where it needs no more than to be found.
///
/// # Errors
///
/// If there is none.
pub fn field<'a>(body: &'a [u8], name: &str) -> anyhow::Result<&'a str> {
    let key = format!("\"{name}\":\"");
    let start = find(body, key.as_bytes()).with_context(|| format!("no {name} in an answer"))? + key.len();
    let end = body[start..].iter().position(|byte| *byte == b'"').map_or(body.len(), |length| start + length);
    Ok(std::str::from_utf8(&body[start..end])?)
}

/// The value of a number field of a JSON object.
///
/// # Errors
///
/// If there is none.
pub fn number(body: &[u8], name: &str) -> anyhow::Result<u64> {
    let key = format!("\"{name}\":");
    let start = find(body, key.as_bytes()).with_context(|| format!("no {name} in an answer"))? + key.len();
    let digits = body[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Ok(std::str::from_utf8(&body[start..start + digits])?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_its_status_and_how_much_follows() {
        let read = |head: &str| read_head(head.as_bytes()).ok();
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"), Some((200, 12)));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 0)));
        assert_eq!(read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), None);
    }

    #[test]
    fn an_answer_is_whole_with_the_last_byte_of_its_body() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let body = |length: usize| whole(&bytes[..length]).ok().flatten().map(|answer| answer.body);
        assert_eq!([body(10), body(bytes.len() - 1), body(bytes.len())], [None, None, Some(b"{}".as_slice())]);
    }

    #[test]
    fn fields_are_found_where_they_stand() {
        let body = br#"{"build_id":"7","next_seq":12,"capped":false}"#;
        assert_eq!(field(body, "build_id").ok(), Some("7"));
        assert_eq!(number(body, "next_seq").ok(), Some(12));
        assert!(field(body, "id").is_err());
    }
}
