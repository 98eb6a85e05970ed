//! Ids in addresses, queries and bodies: their hyphenated form and no other.

use callboard_tests::Board;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// What else parsers take for the same id, as it can stand in an address.
fn other_forms(id: Uuid) -> [String; 3] {
    [id.simple().to_string(), format!("%7B{id}%7D"), id.urn().to_string()]
}

#[tokio::test]
async fn an_id_in_an_address_is_taken_in_its_hyphenated_form_alone() {
    let board = Board::new().await;
    let build = board.running().await;
    for id in other_forms(build) {
        for (method, rest) in
            [(Method::GET, ""), (Method::GET, "/logs"), (Method::POST, "/cancel"), (Method::POST, "/retry")]
        {
            let answer =
                board.call(method.clone(), &format!("/api/v1/builds/{id}{rest}"), &board.api, &Value::Null).await;
            assert_eq!(answer.said(), (400, "bad_request"), "{method} {id}{rest}");
        }
        for (call, body) in [
            ("heartbeat", json!({})),
            ("logs", json!({ "chunks": [] })),
            ("complete", json!({ "status": "success", "ran_ms": 1, "last_seq": 0 })),
        ] {
            let answer = board.work(&format!("builds/{id}/{call}"), &body).await;
            assert_eq!(answer.said(), (400, "bad_request"), "{call} {id}");
        }
        for (method, rest) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/extend")] {
            let answer =
                board.call(method.clone(), &format!("/api/v1/previews/{id}{rest}"), &board.api, &Value::Null).await;
            assert_eq!(answer.said(), (400, "bad_request"), "{method} {id}{rest}");
        }
    }
    let upper = build.to_string().to_uppercase();
    assert_eq!(board.get(&format!("/api/v1/builds/{upper}")).await.ok()["status"], "running", "nothing was done");
}

#[tokio::test]
async fn an_id_in_a_query_is_taken_in_its_hyphenated_form_alone() {
    let board = Board::new().await;
    let build = board.submit().await;
    for query in ["builds?cursor=", "previews?cursor=", "previews?build="] {
        assert_eq!(board.get(&format!("/api/v1/{query}{build}")).await.status, 200, "{query}");
        for id in other_forms(build) {
            let answer = board.get(&format!("/api/v1/{query}{id}")).await;
            assert_eq!(answer.said(), (422, "invalid"), "{query}{id}");
        }
    }
}

#[tokio::test]
async fn an_id_in_a_body_is_taken_in_its_hyphenated_form_alone() {
    let board = Board::new().await;
    let build = board.submit().await;
    let id = Uuid::new_v4();
    for id in [id.simple().to_string(), id.braced().to_string(), id.urn().to_string()] {
        let worker = json!({ "name": "w1", "version": "test", "host_id": "h1", "isolation": ["bubblewrap"] });
        let claim = board.work("claim", &json!({ "claim_id": id, "worker": worker })).await;
        assert_eq!(claim.said(), (400, "bad_request"), "{id}");
        let previews = json!([{ "build_id": id, "state": "kept" }]);
        let sync = json!({ "host_id": "h1", "ports": { "first": 1, "last": 2 }, "previews": previews });
        assert_eq!(board.work("previews/sync", &sync).await.said(), (400, "bad_request"), "{id}");
    }
    assert_eq!(board.build(build).await["status"], "pending");
}
