//! AWS Secrets Manager, asked for a secret's value.

use super::service::{Kind, Service, Unanswered};
use crate::config::BadSetting;
use serde::Deserialize;
use serde_json::json;

const KIND: Kind =
    Kind { name: "secretsmanager", endpoint: "AWS_ENDPOINT_URL_SECRETS_MANAGER", prefix: "secretsmanager" };

/// The service of one region, asked as the function's role.
pub(crate) struct SecretsManager(Service);

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

/// What RDS keeps in the secret that it makes.
#[derive(Deserialize)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: String,
}

impl SecretsManager {
    /// The service that `lookup`'s region and credentials name. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if one of Lambda's own variables is missing.
    pub(crate) fn new(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, BadSetting> {
        Service::new(lookup, KIND).map(Self)
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
        let asked = self.0.ask("GetSecretValue", &json!({ "SecretId": id })).await;
        let body = asked.map_err(|why| match why {
            Unanswered::Unreachable => Unfetched::Unreachable,
            Unanswered::Refused(status, kind) => Unfetched::Refused(id.into(), status, kind),
        })?;
        let answer: Option<Answer> = serde_json::from_slice(&body).ok();
        answer.and_then(|answer| answer.value).ok_or_else(|| Unfetched::Unreadable(id.into(), "a text"))
    }
}
