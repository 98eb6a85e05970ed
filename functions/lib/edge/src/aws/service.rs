//! A service of AWS that takes JSON, asked as the function's role.

use super::sign::{Asked, Credentials, Scope, authorization, instant};
use crate::config::BadSetting;
use bytes::Bytes;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// How long one question may take. Whoever called the function waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONTENT: &str = "application/x-amz-json-1.1";

/// Which service it is.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Its name in hosts and signatures.
    pub(crate) name: &'static str,
    /// The variable with an emulator's address, as AWS's SDKs have it.
    pub(crate) endpoint: &'static str,
    /// What its actions are called after.
    pub(crate) prefix: &'static str,
}

/// The service of one region.
pub(crate) struct Service {
    http: Client,
    url: Url,
    region: String,
    who: Credentials,
    kind: Kind,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// No endpoint in this network, or a certificate of somebody else.
    Unreachable,
    /// A status, and the kind of error that it names.
    Refused(u16, String),
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "__type", default)]
    kind: String,
}

fn given(lookup: impl Fn(&'static str) -> Option<String>, name: &'static str) -> Result<String, BadSetting> {
    lookup(name).ok_or_else(|| BadSetting::new(name, "not set, though Lambda sets it"))
}

/// The function's role.
///
/// # Errors
///
/// [`BadSetting`] if one of Lambda's own variables is missing.
pub(crate) fn credentials(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Credentials, BadSetting> {
    let key = given(&lookup, "AWS_SECRET_ACCESS_KEY")?;
    Ok(Credentials { key_id: given(&lookup, "AWS_ACCESS_KEY_ID")?, key, session: lookup("AWS_SESSION_TOKEN") })
}

impl Service {
    /// The service that `lookup`'s region and credentials name. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if one of Lambda's own variables is missing, or an emulator's address is none.
    pub(crate) fn new(lookup: impl Fn(&'static str) -> Option<String>, kind: Kind) -> Result<Self, BadSetting> {
        let region = given(&lookup, "AWS_REGION")?;
        let elsewhere = [kind.endpoint, "AWS_ENDPOINT_URL"].into_iter().find_map(&lookup);
        let url = elsewhere.unwrap_or_else(|| format!("https://{}.{region}.amazonaws.com", kind.name));
        let url =
            Url::parse(&url).map_err(|_| BadSetting::new("AWS_ENDPOINT_URL", "not an address; give https://host"))?;
        let who = credentials(&lookup)?;
        // A provider that is installed already is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let builder = Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).no_proxy();
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let http =
            builder.build().map_err(|_| BadSetting::new("AWS_REGION", "https needs this system's certificates"))?;
        Ok(Self { http, url, region, who, kind })
    }

    /// The answer to `action`.
    ///
    /// # Errors
    ///
    /// [`Unanswered`] says why there is none. Nothing of the question or the answer is in it.
    pub(crate) async fn ask(&self, action: &str, question: &Value) -> Result<Bytes, Unanswered> {
        let sent = self.request(action, question.to_string()).send().await;
        let response = sent.map_err(|_| Unanswered::Unreachable)?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|_| Unanswered::Unreachable)?;
        if status == 200 {
            return Ok(body);
        }
        let kind = serde_json::from_slice(&body).map_or_else(|_| String::new(), |refusal: Refusal| refusal.kind);
        Err(Unanswered::Refused(status, kind))
    }

    fn request(&self, action: &str, body: String) -> reqwest::RequestBuilder {
        // AWS refuses a signature of another time. Nothing of ours is decided by this clock.
        #[expect(clippy::disallowed_methods)]
        let at = instant(SystemTime::now().into());
        let (host, action) = (self.url.authority(), format!("{}.{action}", self.kind.prefix));
        let mut headers = vec![("content-type", CONTENT), ("host", host), ("x-amz-date", at.as_str())];
        headers.extend(self.who.session.as_deref().map(|session| ("x-amz-security-token", session)));
        headers.push(("x-amz-target", action.as_str()));
        let asked = Asked { method: "POST", path: "/", query: "", headers: &headers, body: body.as_bytes() };
        let scope = Scope { region: &self.region, service: self.kind.name };
        let signed = authorization(&asked, scope, &self.who, &at);
        let request = self.http.post(self.url.clone()).header("authorization", signed);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(body)
    }
}
