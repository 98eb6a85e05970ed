//! ECS's agent, as a task sees it: `PUT $ECS_AGENT_URI/task-protection/v1/state`. It calls ECS by the task's role.

use reqwest::Client;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The agent itself tries again within it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of what it says is repeated.
const SHOWN_MAX: usize = 300;
/// What it says where the service has more protected tasks than it wants.
const BLOCKED: &str = "DEPLOYMENT_BLOCKED";

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is so.
    Done,
    /// The service has more protected tasks than it wants.
    Blocked,
    /// It is not so, and why.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Agent {
    client: Client,
    url: String,
}

impl Agent {
    pub(super) fn new(uri: &str) -> reqwest::Result<Self> {
        // A provider that is installed already is as good; without TLS none is used.
        rustls::crypto::ring::default_provider().install_default().ok();
        // It is on this host, wherever else a proxy leads.
        let client = Client::builder().timeout(PATIENCE).no_proxy().tls_certs_only([]).build()?;
        Ok(Self { client, url: format!("{}/task-protection/v1/state", uri.trim_end_matches('/')) })
    }

    /// Has the task protected for so many minutes, or no more.
    pub(super) async fn set(&self, minutes: Option<u32>) -> Answer {
        let wanted = match minutes {
            Some(minutes) => json!({ "ProtectionEnabled": true, "ExpiresInMinutes": minutes }),
            None => json!({ "ProtectionEnabled": false }),
        };
        let answered = async {
            let response = self.client.put(&self.url).json(&wanted).send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        };
        match answered.await {
            Ok((status, body)) => meaning(status, &body, minutes.is_some()),
            Err(error) if error.is_timeout() => Answer::Failed("ECS's agent does not answer in time".into()),
            Err(_) => Answer::Failed("ECS's agent does not answer".into()),
        }
    }
}

/// One of the three is there. A failure comes with status 200.
#[derive(Default, Deserialize)]
struct Said {
    protection: Option<State>,
    failure: Option<Failure>,
    error: Option<Trouble>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    protection_enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    reason: String,
    detail: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Trouble {
    code: String,
    message: Option<String>,
}

fn meaning(status: u16, body: &[u8], wanted: bool) -> Answer {
    match serde_json::from_slice(body).unwrap_or_default() {
        Said { failure: Some(failure), .. } if failure.reason == BLOCKED => Answer::Blocked,
        Said { failure: Some(Failure { reason, detail }), .. } => failed(&reason, detail),
        Said { error: Some(Trouble { code, message }), .. } => failed(&code, message),
        Said { protection: Some(state), .. } if state.protection_enabled == wanted => Answer::Done,
        Said { .. } => Answer::Failed(format!("ECS's agent answered {status} without saying what is so")),
    }
}

fn failed(code: &str, message: Option<String>) -> Answer {
    let mut why = message.map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
    why.truncate(why.floor_char_boundary(SHOWN_MAX));
    Answer::Failed(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:ecs:us-west-2:111122223333:task/1234567890abcdef0";

    #[test]
    fn it_is_so_only_if_the_agent_says_so() {
        let on = json!({ "protection": { "ExpirationDate": "2022-10-06T02:29:16Z", "ProtectionEnabled": true, "TaskArn": ARN } });
        let off = json!({ "protection": { "ExpirationDate": null, "ProtectionEnabled": false, "TaskArn": ARN } });
        let said = |body: &serde_json::Value, wanted| meaning(200, body.to_string().as_bytes(), wanted);
        assert_eq!([said(&on, true), said(&off, false)], [Answer::Done, Answer::Done]);
        for (body, wanted) in [(&off, true), (&on, false), (&json!({}), true), (&json!({ "protection": null }), true)] {
            assert!(matches!(said(body, wanted), Answer::Failed(_)), "{body}");
        }
        assert!(matches!(meaning(502, b"<h1>what</h1>", true), Answer::Failed(why) if why.contains("502")));
    }

    #[test]
    fn a_failure_is_one_though_its_status_is_200() {
        let said = |reason: &str| {
            let body = json!({ "failure": { "Arn": ARN, "Detail": null, "Reason": reason } });
            meaning(200, body.to_string().as_bytes(), true)
        };
        assert_eq!(said("DEPLOYMENT_BLOCKED"), Answer::Blocked);
        assert_eq!(said("TASK_NOT_VALID"), Answer::Failed("TASK_NOT_VALID".into()));
    }

    #[test]
    fn an_error_is_told_with_its_words_and_not_with_all_of_a_long_one() {
        let body = json!({ "requestID": "1", "error": { "Arn": ARN, "Code": "AccessDeniedException", "Message": "é".repeat(400) } });
        let Answer::Failed(why) = meaning(403, body.to_string().as_bytes(), true) else { panic!("a failure") };
        assert!(why.starts_with("AccessDeniedException: é") && why.len() <= SHOWN_MAX, "{why}");
    }
}
