//! The first lines of a request to the proxy: where it wants to go, and what is passed on of it.

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The host, without brackets.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
    /// What the server is sent before the client's other bytes; `None` for a tunnel.
    pub(super) forward: Option<Vec<u8>>,
}

/// Reads a request's head, up to and with its empty line: `CONNECT host:port`, or another method with `http://…`.
/// `None` if it is neither.
pub(super) fn parse(head: &str) -> Option<Head> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    if method == "CONNECT" {
        let (host, port) = host_and_port(target, None)?;
        return Some(Head { host, port, forward: None });
    }
    let (scheme, rest) = target.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = host_and_port(authority, Some(80)).filter(|_| scheme.eq_ignore_ascii_case("http"))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut forward = format!("{method} {slash}{path} {version}\r\n");
    for line in lines.take_while(|line| !line.is_empty()).filter(|line| is_passed_on(line)) {
        forward.push_str(line);
        forward.push_str("\r\n");
    }
    forward.push_str("Connection: close\r\n\r\n");
    Some(Head { host, port, forward: Some(forward.into_bytes()) })
}

/// Headers that are meant for the proxy stay here.
fn is_passed_on(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or("").trim().to_ascii_lowercase();
    !name.starts_with("proxy-") && name != "connection" && name != "keep-alive"
}

fn host_and_port(authority: &str, default_port: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        Some(_) | None => (authority, default_port),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    plain.then(|| port.map(|port| (host.to_owned(), port)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_names_host_and_port() {
        let head = parse("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n").unwrap();
        assert_eq!((head.host.as_str(), head.port, head.forward), ("example.com", 443, None));
        assert_eq!(parse("CONNECT [2606::1]:443 HTTP/1.1\r\n\r\n").unwrap().host, "2606::1");
    }

    #[test]
    fn a_plain_request_is_passed_on_without_what_is_the_proxys() {
        let head = "GET http://example.com/a?b=1 HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: x\r\n\
                    Proxy-Connection: keep-alive\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n";
        let parsed = parse(head).unwrap();
        let forward = String::from_utf8(parsed.forward.unwrap()).unwrap();
        assert_eq!((parsed.host.as_str(), parsed.port), ("example.com", 80));
        let expected = "GET /a?b=1 HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(forward, expected);
    }

    #[test]
    fn a_request_without_a_path_asks_for_the_root() {
        let forward = |head| String::from_utf8(parse(head).unwrap().forward.unwrap()).unwrap();
        assert!(forward("GET http://example.com HTTP/1.1\r\n\r\n").starts_with("GET / HTTP/1.1\r\n"));
        assert!(forward("GET http://example.com:8080?q HTTP/1.1\r\n\r\n").starts_with("GET /?q HTTP/1.1\r\n"));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for head in [
            "",
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT a b:1 HTTP/1.1\r\n\r\n",
            "GET ftp://example.com/ HTTP/1.1\r\n\r\n",
            "GET https://example.com/ HTTP/1.1\r\n\r\n",
            "CONNECT user@example.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(parse(head), None, "{head:?}");
        }
    }
}
