//! Live previews (SPEC.md, 4): the board's side, with hosts that only say that they did what they were told.

mod cleanup;
mod ends;
mod faults;
mod host;
mod killed;
mod leases;
mod places;
mod races;
mod schema;
mod syncs;
mod web;

use crate::Board;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use host::FakeHost;

/// A pipeline whose builds end in a preview, of an hour unless the test says otherwise.
fn pipeline(preview: &Value) -> Value {
    let mut spec = crate::scenario::pipeline();
    let mut whole = json!({ "commands": ["serve"], "port": 8080, "health_path": "/up", "ttl_seconds": 3600 });
    whole.as_object_mut().expect("an object").extend(preview.as_object().expect("an object").clone());
    spec["preview"] = whole;
    spec
}

/// A board whose pipeline `main` ends in a preview.
async fn board() -> Board {
    board_with(&json!({})).await
}

async fn board_with(preview: &Value) -> Board {
    let board = Board::new().await;
    board.pipeline(&board.api, "main", &pipeline(preview)).await;
    board
}

/// A build that has succeeded, so that it has a preview.
async fn succeeded(board: &Board) -> Uuid {
    board.ended("success").await
}

/// A build whose preview runs on `host`.
async fn running(board: &Board, host: &mut FakeHost) -> Uuid {
    let build = succeeded(board).await;
    host.keep(build);
    host.settle(board).await;
    assert_eq!(of(board, build).await["status"], "running");
    build
}

/// The preview of a build, as `acme` sees it.
async fn of(board: &Board, build: Uuid) -> Value {
    let list = board.get(&format!("/api/v1/previews?build={build}")).await.ok();
    list["previews"][0].clone()
}

fn path(preview: &Value) -> String {
    format!("/api/v1/previews/{}", preview["id"].as_str().expect("an id"))
}

/// Destroys a build's preview, whatever its version.
async fn destroy(board: &Board, build: Uuid) -> Value {
    let path = path(&of(board, build).await);
    board.call(Method::DELETE, &path, &board.api, &Value::Null).await.ok()
}

/// A request with an `If-Match`.
async fn if_match(board: &Board, method: Method, path: &str, version: &Value) -> crate::scenario::Answer {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {}", board.api))
        .header("if-match", format!("\"{version}\""))
        .body(axum::body::Body::empty());
    board.send(request.expect("a request of the test itself")).await
}

/// Lets `seconds` pass for all previews and hosts.
async fn pass(board: &Board, seconds: u32) {
    board
        .execute(&format!(
            "update previews set created_at = created_at - interval '{seconds} s',
                 expires_at = expires_at - interval '{seconds} s' where status <> 'destroyed'"
        ))
        .await;
    board.execute(&format!("update preview_hosts set synced_at = synced_at - interval '{seconds} s'")).await;
}

/// What must be so when nothing is under way, besides what holds of builds.
async fn holds_together(board: &Board) {
    board.holds_together().await;
    for (what, query) in [
        (
            "places taken are those of the previews",
            "select count(*) from preview_places c where taken <> (
                 select count(*) from previews p where p.workspace_id = c.workspace_id and p.placed)",
        ),
        (
            "a preview has a lease of the port it says, and no other",
            "select count(*) from previews p full join port_leases l on l.preview_id = p.id
             where (p.token_id, p.host_id, p.port) is distinct from (l.token_id, l.host_id, l.port)
                 and (p.port is not null or l.port is not null)",
        ),
        (
            "a successful build of a pipeline with a preview has one",
            "select count(*) from builds b left join previews p on p.build_id = b.id
             where (b.has_preview and b.status = 'success') <> (p.id is not null) and b.id not in (
                 select build_id from previews where status = 'destroyed')",
        ),
    ] {
        assert_eq!(board.number(query).await, 0, "{what}");
    }
}
