//! What an operator says about previews.

use protocol::preview::PortRange;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// What stands for the port in an address for people.
const PORT: &str = "PORT";

/// How a host holds previews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether it does.
    pub enabled: bool,
    /// The ports that it gives them.
    pub ports: PortRange,
    /// Where those are bound.
    pub address: IpAddr,
    /// Where people find a preview; `PORT` stands for its port.
    pub url: Option<Url>,
    /// How long a service may take to answer first.
    pub start: Duration,
    /// How often it is asked afterwards.
    pub health_every: Duration,
}

impl Settings {
    /// Where people find what is bound to `port`.
    #[must_use]
    pub fn url(&self, port: u16) -> String {
        match &self.url {
            Some(Url(url)) => url.replace(PORT, &port.to_string()),
            None => format!("http://{}/", SocketAddr::new(self.address, port)),
        }
    }
}

/// An address for people with a place for the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Url(String);

impl FromStr for Url {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let rest = word.strip_prefix("http://").or_else(|| word.strip_prefix("https://"));
        let is_fine = rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()));
        if is_fine && word.contains(PORT) && word.len() <= 1024 {
            return Ok(Self(word.to_owned()));
        }
        Err("must begin with http:// or https:// and hold PORT, such as https://previews.example.com:PORT/".into())
    }
}

/// `FIRST-LAST`, as an option says it.
///
/// # Errors
///
/// What it must be.
pub fn range(word: &str) -> Result<PortRange, String> {
    let ends = word.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if 0 < first && first <= last => Ok(PortRange { first, last }),
        Some(_) | None => Err("must be FIRST-LAST, such as 20000-20999".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ends_in_order() {
        assert_eq!(range("20000-20000"), Ok(PortRange { first: 20_000, last: 20_000 }));
        for word in ["", "20000", "2-1", "0-5", "1-70000", "a-b", "1-2-3"] {
            assert!(range(word).is_err(), "{word}");
        }
    }

    fn settings(address: &str, url: Option<&str>) -> Settings {
        Settings {
            enabled: true,
            ports: PortRange { first: 1, last: 2 },
            address: address.parse().unwrap(),
            url: url.map(|url| url.parse().unwrap()),
            start: Duration::ZERO,
            health_every: Duration::ZERO,
        }
    }

    #[test]
    fn people_are_sent_to_the_port_where_the_operator_says() {
        assert_eq!(settings("127.0.0.1", None).url(2), "http://127.0.0.1:2/");
        assert_eq!(settings("::1", None).url(2), "http://[::1]:2/");
        assert_eq!(settings("127.0.0.1", Some("https://PORT.example.com/")).url(2), "https://2.example.com/");
        for word in ["ftp://x:PORT", "http://x/", "http://", "http://a b:PORT"] {
            assert!(word.parse::<Url>().is_err(), "{word}");
        }
    }
}
