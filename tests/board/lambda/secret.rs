//! Settings that are secrets, and a database that is known by its certificate.

use super::OnLambda;
use super::server::{Server, certificate};
use super::service::SecretsManager;
use serde_json::{Value, json};

const DATABASE: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:database-AbCdEf";
const KEY: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key-AbCdEf";

/// A function of which everything that is secret is in `service`.
async fn function(server: &Server, service: &str, ca: &str) -> OnLambda {
    let settings = [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        ("AWS_SESSION_TOKEN", "session"),
        ("AWS_ENDPOINT_URL_SECRETS_MANAGER", service),
        ("CALLBOARD_DATABASE_URL", &server.url()),
        ("CALLBOARD_DATABASE_SECRET", DATABASE),
        ("CALLBOARD_DATABASE_CA", ca),
        ("CALLBOARD_KEY_SECRET", KEY),
    ];
    OnLambda::run("routes", &settings).await
}

fn login(password: &str) -> String {
    json!({ "username": "functions", "password": password }).to_string()
}

async fn readiness(function: &mut OnLambda) -> u64 {
    function.call("GET", "/readyz", "", &Value::Null).await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_and_key_are_fetched_at_the_first_call_and_the_password_again_when_it_has_changed() {
    let (server, service) = (Server::start().await, SecretsManager::default());
    let mut function = function(&server, &service.start().await, &server.ca).await;
    assert_eq!(readiness(&mut function).await, 503, "there is no secret yet");
    server.set_password("first").await;
    service.set(DATABASE, &login("first"));
    service.set(KEY, &format!("k1:{}", "07".repeat(32)));
    for _ in 0..3 {
        assert_eq!(readiness(&mut function).await, 200);
    }
    assert_eq!((service.asked(KEY), service.asked(DATABASE)), (1, 1));

    server.set_password("second").await;
    assert_eq!(readiness(&mut function).await, 200, "an open connection stays");
    server.disconnect().await;
    assert_eq!(readiness(&mut function).await, 503, "the secret is not the new one yet");
    service.set(DATABASE, &login("second"));
    assert_eq!(readiness(&mut function).await, 200);
    assert_eq!((service.asked(KEY), service.asked(DATABASE)), (1, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_certificate_another_authority_has_signed_gets_no_password() {
    let (server, service) = (Server::start().await, SecretsManager::default());
    server.set_password("first").await;
    service.set(DATABASE, &login("first"));
    service.set(KEY, &format!("k1:{}", "07".repeat(32)));
    let [_, _, another] = certificate();
    let url = service.start().await;
    assert_eq!(readiness(&mut function(&server, &url, &another).await).await, 503);
    let (directory, file) = (tempfile::tempdir().expect("a directory"), "ca.pem");
    let file = directory.path().join(file);
    std::fs::write(&file, &server.ca).expect("written");
    let file = file.to_str().expect("a path");
    assert_eq!(readiness(&mut function(&server, &url, file).await).await, 200);
}
