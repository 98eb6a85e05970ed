//! AWS Secrets Manager, asked for a secret's value.

use super::sign::{Asked, Credentials, Scope, authorization, instant};
use crate::config::BadSetting;
use reqwest::{Client, Url};
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// How long one question may take. Whoever called the function waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_ENDPOINT_URL"];
const ACTION: &str = "secretsmanager.GetSecretValue";
const CONTENT: &str = "application/x-amz-json-1.1";

/// The service of one region, asked as the function's role.
pub(crate) struct SecretsManager {
    http: Client,
    url: Url,
    region: String,
    who: Credentials,
}

/// Why there is no value. Nothing of a secret is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfetched {
    /// It does not answer: no endpoint in this network, or a certificate of somebody else.
    #[error("Secrets Manager does not answer")]
    Unreachable,
    /// It refuses: the role may not read the secret, or there is none of that name.
    #[error("Secrets Manager refuses the secret {0} with status {1} ({2}); may the function's role read it?")]
    Refused(String, u16, String),
    /// The value is not what it must be.
    #[error("the secret {0} is not {1}")]
    Unreadable(String, &'static str),
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "SecretString")]
    value: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "__type", default)]
    kind: String,
}

/// What RDS keeps in the secret that it makes.
#[derive(Deserialize)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: String,
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

impl SecretsManager {
    /// The service that `lookup`'s region and credentials name. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if one of Lambda's own variables is missing.
    pub(crate) fn new(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, BadSetting> {
        let region = given(&lookup, "AWS_REGION")?;
        // As AWS's SDKs have it: an emulator's address, for this service or for all.
        let elsewhere = ENDPOINTS.into_iter().find_map(&lookup);
        let url = elsewhere.unwrap_or_else(|| format!("https://secretsmanager.{region}.amazonaws.com"));
        let url =
            Url::parse(&url).map_err(|_| BadSetting::new("AWS_ENDPOINT_URL", "not an address; give https://host"))?;
        let who = credentials(&lookup)?;
        // A provider that is installed already is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let builder = Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).no_proxy();
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let http =
            builder.build().map_err(|_| BadSetting::new("AWS_REGION", "https needs this system's certificates"))?;
        Ok(Self { http, url, region, who })
    }

    /// The name and password in the secret `id`, as RDS keeps them.
    ///
    /// # Errors
    ///
    /// [`Unfetched`] says why there are none.
    pub(crate) async fn login(&self, id: &str) -> Result<Login, Unfetched> {
        let value = self.value(id).await?;
        let wanted = "JSON with a password, and perhaps a username";
        serde_json::from_str(&value).map_err(|_| Unfetched::Unreadable(id.into(), wanted))
    }

    /// The text in the secret `id`, a name or an ARN.
    ///
    /// # Errors
    ///
    /// [`Unfetched`] says why there is none.
    pub(crate) async fn value(&self, id: &str) -> Result<String, Unfetched> {
        let body = serde_json::json!({ "SecretId": id }).to_string();
        let response = self.request(body).send().await.map_err(|_| Unfetched::Unreachable)?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|_| Unfetched::Unreachable)?;
        if status != 200 {
            let kind = serde_json::from_slice(&body).map_or_else(|_| String::new(), |refusal: Refusal| refusal.kind);
            return Err(Unfetched::Refused(id.into(), status, kind));
        }
        let answer: Option<Answer> = serde_json::from_slice(&body).ok();
        answer.and_then(|answer| answer.value).ok_or_else(|| Unfetched::Unreadable(id.into(), "a text"))
    }

    fn request(&self, body: String) -> reqwest::RequestBuilder {
        // AWS refuses a signature of another time. Nothing of ours is decided by this clock.
        #[expect(clippy::disallowed_methods)]
        let at = instant(SystemTime::now().into());
        let host = self.url.authority();
        let mut headers = vec![("content-type", CONTENT), ("host", host), ("x-amz-date", at.as_str())];
        headers.extend(self.who.session.as_deref().map(|session| ("x-amz-security-token", session)));
        headers.push(("x-amz-target", ACTION));
        let asked = Asked { method: "POST", path: "/", query: "", headers: &headers, body: body.as_bytes() };
        let scope = Scope { region: &self.region, service: "secretsmanager" };
        let signed = authorization(&asked, scope, &self.who, &at);
        let request = self.http.post(self.url.clone()).header("authorization", signed);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(body)
    }
}
