//! A Secrets Manager of the test's own: one call of it, to whoever signs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What it holds, and how often each was asked for.
#[derive(Clone, Default)]
pub(super) struct SecretsManager {
    held: Arc<Mutex<BTreeMap<String, (String, u32)>>>,
}

impl SecretsManager {
    pub(super) async fn start(&self) -> String {
        let app = Router::new().route("/", post(answer)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    pub(super) fn set(&self, name: &str, value: &str) {
        self.held.lock().expect("held").entry(name.into()).or_default().0 = value.into();
    }

    pub(super) fn asked(&self, name: &str) -> u32 {
        self.held.lock().expect("held").get(name).map_or(0, |(_, times)| *times)
    }
}

async fn answer(State(service): State<SecretsManager>, headers: HeaderMap, body: String) -> Response {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let signed = said("authorization");
    let names = "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature=";
    let is_signed = signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") && signed.contains(names);
    let scope =
        format!("/{}/us-east-1/secretsmanager/aws4_request, ", said("x-amz-date").split('T').next().unwrap_or(""));
    if !is_signed || !signed.contains(&scope) || said("x-amz-security-token") != "session" {
        return (StatusCode::BAD_REQUEST, Json(json!({ "__type": "IncompleteSignatureException" }))).into_response();
    }
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(said("x-amz-target"), "secretsmanager.GetSecretValue");
    let mut held = service.held.lock().expect("held");
    match held.get_mut(body["SecretId"].as_str().expect("a name")) {
        Some((value, times)) => {
            *times += 1;
            Json(json!({ "ARN": "arn", "SecretString": value })).into_response()
        }
        None => (StatusCode::BAD_REQUEST, Json(json!({ "__type": "ResourceNotFoundException" }))).into_response(),
    }
}
