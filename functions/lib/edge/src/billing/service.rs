//! The billing service, asked over HTTP. It is trusted with nothing: its answer is bounded in time and size, and is a plan to
//! the letter or none.

use crate::config::{BadSetting, BillingService};
use http::header::{ACCEPT, CONTENT_TYPE};
use protocol::worker::Secret;
use reqwest::{Client, Response, Url};
use rules::billing::{Answer, Given, Unreadable, check_head, read};
use rules::budget::Plan;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// The largest answer that is read: 64 KiB.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// A connection that was idle for longer may have been closed by the other side.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A billing service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    http: Client,
    url: Url,
    token: Secret,
    timeout: Duration,
}

impl Service {
    /// A client of the service that `settings` name. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if its address or token can't be used, or the system's certificates are needed and missing.
    pub fn new(settings: &BillingService) -> Result<Self, BadSetting> {
        let url = address(&settings.url).ok_or_else(|| BadSetting::new("CALLBOARD_BILLING_URL", URL))?;
        let token = settings.token.clone();
        if !(1..=4096).contains(&token.0.len()) || !token.0.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadSetting::new("CALLBOARD_BILLING_TOKEN", "give visible ASCII characters"));
        }
        let http = client(&url, settings.timeout)
            .map_err(|_| BadSetting::new("CALLBOARD_BILLING_URL", "https needs this system's certificates"))?;
        Ok(Self { http, url, token, timeout: settings.timeout })
    }

    /// How long one question may take, from the connection to the last byte.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks for a workspace's plan, once.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] says what came instead.
    pub async fn plan(&self, slug: &str) -> Result<Plan, Unreadable> {
        tokio::time::timeout(self.timeout, self.ask(slug)).await.unwrap_or(Err(Unreadable::Timeout))
    }

    async fn ask(&self, slug: &str) -> Result<Plan, Unreadable> {
        let request = self.http.get(self.plan_of(slug)).bearer_auth(&self.token.0).header(ACCEPT, "application/json");
        let response = request.send().await.map_err(|error| failure(&error))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        check_head(response.status().as_u16(), kind)?;
        parse(&whole(response).await?)
    }

    /// `{url}/workspaces/{slug}/plan`.
    fn plan_of(&self, slug: &str) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["workspaces", slug, "plan"]);
        }
        url
    }
}

const URL: &str = "not an address to ask; give https://host[:port][/path], or http:// for this machine's loopback";

fn address(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok()?;
    let bare =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    let sealed = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    (bare && sealed && url.has_host()).then_some(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("");
    let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn client(url: &Url, connect_timeout: Duration) -> reqwest::Result<Client> {
    // A provider that is installed already is as good.
    rustls::crypto::ring::default_provider().install_default().ok();
    let builder = Client::builder()
        .connect_timeout(connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(IDLE_MAX)
        .user_agent(concat!("callboard/", env!("CARGO_PKG_VERSION")));
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    // Without TLS no certificate is needed, and a host without any must not fail.
    let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
    builder.build()
}

fn failure(error: &reqwest::Error) -> Unreadable {
    if error.is_timeout() {
        Unreadable::Timeout
    } else if error.is_connect() {
        Unreadable::Unreachable
    } else {
        Unreadable::Broken
    }
}

/// The body, if it is not longer than an answer may be. What comes after that is not read.
async fn whole(mut response: Response) -> Result<Vec<u8>, Unreadable> {
    if response.content_length().is_some_and(|length| length > ANSWER_MAX_BYTES as u64) {
        return Err(Unreadable::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err(Unreadable::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    minutes_per_month: Field,
    #[serde(default)]
    build_seconds_max: Field,
    #[serde(default)]
    running_max: Field,
    #[serde(default)]
    pending_max: Field,
    #[serde(default)]
    previews_max: Field,
    #[serde(default)]
    preview_seconds_max: Field,
}

struct Field(Given);

impl Default for Field {
    fn default() -> Self {
        Self(Given::Nothing)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let whole = value.as_u64().map(i128::from).or(value.as_i64().map(i128::from));
        Ok(Self(whole.map_or(Given::Other, Given::Whole)))
    }
}

/// Reads an answer's body. A field that stands in it twice makes it no answer; so does anything after the object.
fn parse(body: &[u8]) -> Result<Plan, Unreadable> {
    // To the derived type a list of four would do too.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Unreadable::NotJson);
    }
    let said: Said = serde_json::from_slice(body).map_err(|_| Unreadable::NotJson)?;
    read(Answer {
        minutes_per_month: said.minutes_per_month.0,
        build_seconds_max: said.build_seconds_max.0,
        running_max: said.running_max.0,
        pending_max: said.pending_max.0,
        previews_max: said.previews_max.0,
        preview_seconds_max: said.preview_seconds_max.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rules::Seconds;
    use rules::budget::PreviewLimits;

    const GOOD: &str = r#"{"minutes_per_month": 100, "build_seconds_max": 60, "running_max": 2, "pending_max": 9}"#;
    const PLAN: Plan = Plan {
        seconds_per_month: Seconds(6000),
        build_seconds_max: Seconds(60),
        running_max: 2,
        pending_max: 9,
        previews: PreviewLimits { live_max: 4, seconds_max: Seconds(86_400) },
    };

    #[test]
    fn an_answer_is_read_whatever_else_stands_in_it() {
        assert_eq!(parse(GOOD.as_bytes()), Ok(PLAN));
        let more = GOOD.replace('}', r#", "name": "Gold", "previews": {"max": [1, -2.5, null]}}"#);
        assert_eq!(parse(more.as_bytes()), Ok(PLAN));
        assert_eq!(parse(format!("\n\t {GOOD}\r\n").as_bytes()), Ok(PLAN));
    }

    #[test]
    fn a_service_may_say_what_it_allows_of_previews() {
        let with = |previews: &str| parse(GOOD.replace('}', &format!(", {previews}}}")).as_bytes());
        let previews = PreviewLimits { live_max: 0, seconds_max: Seconds(600) };
        assert_eq!(with(r#""previews_max": 0, "preview_seconds_max": 600"#), Ok(Plan { previews, ..PLAN }));
        let previews = PreviewLimits { live_max: 7, ..PLAN.previews };
        assert_eq!(with(r#""previews_max": 7"#), Ok(Plan { previews, ..PLAN }));
        for wrong in [r#""previews_max": null"#, r#""previews_max": -1"#, r#""preview_seconds_max": 86401"#] {
            assert_eq!(with(wrong), Err(Unreadable::Invalid), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_a_plan_is_invalid() {
        for value in [
            "-1",
            "-100",
            "-0",
            "1.5",
            "100.0",
            "1e2",
            "35000001",
            "4294967396",
            "18446744073709551616",
            "1e300",
            "null",
            "true",
            "\"100\"",
            "\"NaN\"",
            "\"Infinity\"",
            "\"\"",
            "[100]",
            "{}",
            "[]",
        ] {
            let said = GOOD.replace("100", value);
            assert_eq!(parse(said.as_bytes()), Err(Unreadable::Invalid), "{value}");
        }
    }

    #[test]
    fn what_is_not_one_json_object_is_none() {
        for body in [
            "",
            " ",
            "null",
            "7",
            "\"x\"",
            "[]",
            "[100, 60, 2, 9]",
            "{",
            "<!doctype html><title>Sign in</title>",
            "{} {}",
            "\u{feff}{}",
        ] {
            assert_eq!(parse(body.as_bytes()), Err(Unreadable::NotJson), "{body}");
        }
        for value in ["NaN", "Infinity", "-Infinity", "0x10", "+1", "1,000", "1e400"] {
            assert_eq!(parse(GOOD.replace("100", value).as_bytes()), Err(Unreadable::NotJson), "{value}");
        }
        assert_eq!(
            parse(GOOD.replace('}', ", \"running_max\": 7}").as_bytes()),
            Err(Unreadable::NotJson),
            "said twice"
        );
        assert_eq!(parse(&[GOOD.as_bytes(), b"x"].concat()), Err(Unreadable::NotJson));
        assert_eq!(parse(format!("{{\"x\": {}", "[".repeat(60_000)).as_bytes()), Err(Unreadable::NotJson));
        assert_eq!(parse(&[0xff, 0xfe, b'{']), Err(Unreadable::NotJson));
    }

    #[test]
    fn a_field_that_is_not_there_is_missing() {
        for field in ["minutes_per_month", "build_seconds_max", "running_max", "pending_max"] {
            assert_eq!(parse(GOOD.replace(field, "other").as_bytes()), Err(Unreadable::Missing), "{field}");
        }
        assert_eq!(parse(b"{}"), Err(Unreadable::Missing));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_plan_that_its_columns_do_not_hold(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn a_number_is_taken_to_the_letter_or_not_at_all(text in r"-?[0-9]{1,12}(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?") {
            if let Ok(plan) = parse(GOOD.replace("9}", &format!("{text}}}")).as_bytes()) {
                prop_assert_eq!(plan.pending_max.to_string(), text);
            }
        }
    }

    fn settings(url: &str, token: &str) -> BillingService {
        BillingService { url: url.into(), token: Secret(token.into()), timeout: Duration::from_secs(2) }
    }

    #[test]
    fn the_address_is_https_or_loopback_and_holds_no_secret() {
        let takes = |url: &str| Service::new(&settings(url, "t")).is_ok();
        for url in ["http://127.0.0.1:8080", "http://localhost/billing/", "http://[::1]:9", "http://127.8.9.1"] {
            assert!(takes(url), "{url}");
        }
        assert_eq!(
            address("https://billing.example/v1").map(|url| url.to_string()).as_deref(),
            Some("https://billing.example/v1")
        );
        for url in [
            "",
            "billing.example",
            "http://billing.example",
            "http://10.0.0.1",
            "http://localhost.example",
            "ftp://localhost",
            "https://user@billing.example",
            "https://user:pass@billing.example",
            "https://billing.example?key=x",
            "https://billing.example#x",
            "file:///etc/passwd",
            "http://[::ffff:10.0.0.1]",
            "data:,x",
        ] {
            assert!(!takes(url), "{url}");
        }
    }

    #[test]
    fn a_token_is_visible_ascii() {
        for token in ["", "a b", "a\nb", "ä", "\u{7f}"] {
            let refused = Service::new(&settings("http://localhost", token)).err();
            assert_eq!(refused.map(|bad| bad.name), Some("CALLBOARD_BILLING_TOKEN"), "{token:?}");
        }
    }

    #[test]
    fn a_plan_is_below_the_address_as_it_was_given() {
        for (url, expected) in [
            ("http://localhost", "http://localhost/workspaces/acme/plan"),
            ("http://localhost/billing/v1/", "http://localhost/billing/v1/workspaces/acme/plan"),
        ] {
            let service = Service::new(&settings(url, "t")).expect("an address");
            assert_eq!(service.plan_of("acme").as_str(), expected);
        }
    }
}
