//! A database that lets the function's role in by a signature instead of a password.

use super::OnLambda;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ARN: &str = "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABCDEFGH/functions";

/// What a client sent: a message without a letter first (`startup`), else after its letter.
async fn message(client: &mut TcpStream, startup: bool) -> String {
    if !startup {
        client.read_u8().await.expect("a letter");
    }
    let length = client.read_u32().await.expect("a length") as usize;
    let mut message = vec![0; length - 4];
    client.read_exact(&mut message).await.expect("a whole message");
    String::from_utf8_lossy(&message).into_owned()
}

/// Asks for a password in clear, as RDS does for such users, lets nobody in, and tells what was said.
async fn said_to(listener: &TcpListener) -> (String, String) {
    let (mut client, _) = listener.accept().await.expect("a client");
    let startup = message(&mut client, true).await;
    client.write_all(b"R\0\0\0\x08\0\0\0\x03").await.expect("asked");
    let password = message(&mut client, false).await;
    let fields = b"SFATAL\0VFATAL\0C28P01\0Mno\0\0";
    let length = u32::try_from(fields.len() + 4).expect("few");
    let refusal = [b"E".as_slice(), &length.to_be_bytes(), fields].concat();
    client.write_all(&refusal).await.expect("refused");
    (startup, password.trim_end_matches('\0').to_owned())
}

fn settings(url: &str) -> [(&str, &str); 7] {
    [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        ("AWS_SESSION_TOKEN", "session"),
        ("CALLBOARD_DATABASE_URL", url),
        ("CALLBOARD_DATABASE_USER_ARN", ARN),
        ("CALLBOARD_SECRETS_KEY", "test:0707070707070707070707070707070707070707070707070707070707070707"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_signs_its_password_for_each_connection_and_asks_no_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let mut function = OnLambda::run("routes", &settings(&format!("postgres://{address}/board?sslmode=disable"))).await;
    let server = tokio::spawn(async move { [said_to(&listener).await, said_to(&listener).await] });
    assert_eq!(function.call("GET", "/readyz", "", &Value::Null).await.0, 503, "nobody is let in");
    for (startup, password) in server.await.expect("both") {
        assert!(startup.contains("user\0functions\0"), "{startup}");
        let start = format!("{address}/?Action=connect&DBUser=functions&X-Amz-Algorithm=AWS4-HMAC-SHA256");
        assert!(password.starts_with(&start), "another start");
        for part in ["%2Feu-west-1%2Frds-db%2Faws4_request", "&X-Amz-Security-Token=session&", "&X-Amz-Signature="] {
            assert!(password.contains(part), "no {part}");
        }
    }
}
