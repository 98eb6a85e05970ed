//! Which worker gets which build, and whose turn it is under `fair` (SPEC.md, Claim: routing, order).

use crate::Board;
use crate::scenario::pipeline;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

/// A claim by a worker with these back ends and labels.
async fn claim_with(board: &Board, token: &str, isolation: &[&str], labels: &[&str]) -> Option<Uuid> {
    let body = json!({ "claim_id": Uuid::new_v4(), "worker": {
        "name": format!("w{}", labels.join(",")), "version": "test", "host_id": "h", "isolation": isolation, "labels": labels } });
    let answer = board.call(Method::POST, "/internal/worker/claim", token, &body).await;
    (answer.status != StatusCode::NO_CONTENT).then(|| answer.id())
}

/// A build of a pipeline of its own with these labels and this image.
async fn submit(board: &Board, api: &str, slug: &str, requires: &[&str], image: &str) -> Uuid {
    let mut spec = pipeline();
    spec["requires"] = json!(requires);
    spec["steps"][0]["image"] = json!(image);
    board.pipeline(api, slug, &spec).await;
    board.call(Method::POST, "/api/v1/builds", api, &json!({ "pipeline": slug })).await.id()
}

#[tokio::test]
async fn a_worker_takes_the_oldest_build_that_its_labels_and_back_ends_cover() {
    let board = Board::new().await;
    let arm = submit(&board, &board.api, "arm", &["arch=arm64"], "host").await;
    let image = submit(&board, &board.api, "image", &[], "alpine:3").await;
    let plain = submit(&board, &board.api, "plain", &[], "host").await;
    let later = submit(&board, &board.api, "arm-image", &["arch=arm64"], "alpine:3").await;
    let worker = &board.worker;
    assert_eq!(claim_with(&board, worker, &["bubblewrap"], &[]).await, Some(plain));
    assert_eq!(claim_with(&board, worker, &["bubblewrap"], &["arch=amd64"]).await, None);
    assert_eq!(claim_with(&board, worker, &["docker", "bubblewrap"], &["arch=arm64", "gpu"]).await, Some(arm));
    assert_eq!(claim_with(&board, worker, &["ecs"], &["arch=arm64"]).await, Some(image));
    assert_eq!(claim_with(&board, worker, &["docker"], &["arch=arm64"]).await, Some(later));
    board.holds_together().await;
}

#[tokio::test]
async fn a_build_that_no_worker_covers_says_so_and_keeps_nobody_waiting() {
    let board = Board::new().await;
    let lonely = submit(&board, &board.api, "lonely", &["gpu"], "host").await;
    let plain = submit(&board, &board.api, "plain", &[], "host").await;
    assert_eq!(board.claim().await, Some(plain));
    assert_eq!(board.build(lonely).await["waiting_for"], "no_worker_matches");
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["arch=x"]).await, None);
    assert_eq!(board.build(lonely).await["waiting_for"], "no_worker_matches");
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["gpu"]).await, Some(lonely));
    board.holds_together().await;
}

#[tokio::test]
async fn a_worker_that_is_at_work_is_told_of_a_class_that_is_new() {
    let board = Board::new().await;
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["gpu", "big"]).await, None);
    for labels in [&["gpu"][..], &["big", "gpu"], &[], &["big"]] {
        let build = submit(&board, &board.api, "main", labels, "host").await;
        assert_eq!(
            claim_with(&board, &board.worker, &["bubblewrap"], &["gpu", "big"]).await,
            Some(build),
            "{labels:?}"
        );
    }
    assert_eq!(board.number("select count(*) from classes").await, 4);
}

#[tokio::test]
async fn labels_in_another_order_or_twice_are_the_same_class() {
    let board = Board::new().await;
    submit(&board, &board.api, "one", &["b", "a"], "host").await;
    submit(&board, &board.api, "two", &["a", "b", "a"], "host").await;
    assert_eq!(board.number("select count(*) from classes").await, 1);
    assert_eq!(board.number("select pending::bigint from queues").await, 2);
    board.holds_together().await;
}

#[tokio::test]
async fn a_place_in_the_queue_counts_the_builds_of_its_own_class() {
    let board = Board::new().await;
    let arm = submit(&board, &board.api, "arm", &["arch=arm64"], "host").await;
    let (first, second) = (board.submit().await, board.submit().await);
    let later = submit(&board, &board.api, "arm", &["arch=arm64"], "host").await;
    for (build, expected) in [(arm, 0), (first, 0), (second, 1), (later, 1)] {
        assert_eq!(board.build(build).await["position"], expected);
    }
    let listed = board.get("/api/v1/builds?status=pending").await.ok();
    let ids: Vec<_> = listed["builds"].as_array().expect("builds").iter().map(|build| build["id"].clone()).collect();
    assert_eq!(ids, [later, second, first, arm].map(|id| json!(id)), "newest first, over all classes");
}

#[tokio::test]
async fn a_workspaces_limits_are_those_of_all_its_classes() {
    let board = Board::new().await;
    board.plans("running_max = 1").await;
    let plain = board.submit().await;
    let arm = submit(&board, &board.api, "arm", &["arch=arm64"], "host").await;
    assert_eq!(board.claim().await, Some(plain));
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["arch=arm64"]).await, None);
    assert_eq!(board.build(arm).await["waiting_for"], "running_limit");
    let _ = board.complete(plain, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["arch=arm64"]).await, Some(arm));
    board.holds_together().await;
}

#[tokio::test]
async fn a_head_that_does_not_fit_keeps_no_other_class_of_its_workspace_waiting() {
    let board = Board::new().await;
    let api = board.tenant("small", json!({ "minutes_per_month": 40, "running_max": 10 })).await;
    let long = board.submit_as(&api).await;
    assert_eq!(board.claim().await, Some(long));
    let other = board.submit_as(&api).await;
    let mut spec = pipeline();
    spec["requires"] = json!(["gpu"]);
    spec["timeout_seconds"] = json!(60);
    board.pipeline(&api, "short", &spec).await;
    let short = board.call(Method::POST, "/api/v1/builds", &api, &json!({ "pipeline": "short" })).await.id();
    assert_eq!(board.claim().await, None, "30 of 40 minutes are reserved, and it asks for 30");
    assert_eq!(claim_with(&board, &board.worker, &["bubblewrap"], &["gpu"]).await, Some(short));
    let seen = board.call(Method::GET, &format!("/api/v1/builds/{other}"), &api, &Value::Null).await.ok();
    assert_eq!(seen["waiting_for"], "minutes");
    board.holds_together().await;
}

#[tokio::test]
async fn a_limited_token_takes_its_own_workspaces_builds_only() {
    let board = Board::new().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let first = board.submit().await;
    let second = board.submit_as(&other).await;
    let body = json!({ "kind": "worker", "workspaces": ["umbrella"], "name": "theirs" });
    let made = board.call(Method::POST, "/api/v1/admin/tokens", &board.operator, &body).await.ok();
    let limited = made["token"].as_str().expect("a token").to_owned();
    assert_eq!(claim_with(&board, &limited, &["bubblewrap"], &[]).await, Some(second));
    assert_eq!(claim_with(&board, &limited, &["bubblewrap"], &[]).await, None);
    assert_eq!(board.claim().await, Some(first));
    let listed = board.call(Method::GET, "/api/v1/admin/tokens", &board.operator, &Value::Null).await.ok();
    let tokens = listed["tokens"].as_array().expect("tokens");
    assert!(tokens.iter().any(|token| token["workspaces"] == json!(["umbrella"])), "{listed}");
}

#[tokio::test]
async fn a_token_limited_to_nothing_or_to_what_is_not_there_is_refused() {
    let board = Board::new().await;
    for (body, field) in [
        (json!({ "kind": "worker", "workspaces": [] }), "workspaces"),
        (json!({ "kind": "worker", "workspaces": ["acme", "nowhere"] }), "workspaces"),
        (json!({ "kind": "api", "workspace": "acme", "workspaces": ["acme"] }), "workspaces"),
        (json!({ "kind": "operator", "workspaces": ["acme"] }), "workspaces"),
    ] {
        let answer = board.call(Method::POST, "/api/v1/admin/tokens", &board.operator, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body["field"].as_str()),
            (422, Some(field)),
            "{body}: {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn only_workers_that_may_take_it_keep_a_build_from_waiting_for_a_match() {
    let board = Board::new().await;
    board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let body = json!({ "kind": "worker", "workspaces": ["umbrella"] });
    let made = board.call(Method::POST, "/api/v1/admin/tokens", &board.operator, &body).await.ok();
    assert_eq!(claim_with(&board, made["token"].as_str().expect("a token"), &["bubblewrap"], &[]).await, None);
    let build = board.submit().await;
    assert_eq!(board.build(build).await["waiting_for"], "no_worker_matches");
}

#[tokio::test]
async fn sql_covers_what_the_rule_covers() {
    use rules::routing::Needs;
    let board = Board::new().await;
    let lists: [&[&str]; 5] = [&[], &["a"], &["b"], &["a", "b"], &["c", "a"]];
    let back_ends: [&[&str]; 5] = [&[], &["bubblewrap"], &["docker"], &["ecs", "bubblewrap"], &["other"]];
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for requires in lists {
        for images in [&["host"][..], &["x"], &["host", "x"]] {
            let needs = Needs::of(&owned(requires), images.iter().copied());
            let id = board
                .number(&format!(
                    "select class_of('{{{}}}', {}, {})::bigint",
                    needs.requires.join(","),
                    needs.host,
                    needs.image
                ))
                .await;
            for isolation in back_ends {
                for labels in lists {
                    let covered = format!(
                        "select worker_covers(c, '{{{}}}', '{{{}}}')::int::bigint from classes c where id = {id}",
                        isolation.join(","),
                        labels.join(",")
                    );
                    let expected = i64::from(needs.covered_by(&owned(isolation), &owned(labels)));
                    assert_eq!(board.number(&covered).await, expected, "{needs:?} {isolation:?} {labels:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_sweep_forgets_queues_that_were_empty_for_an_hour_and_classes_without_a_queue() {
    let board = Board::new().await;
    submit(&board, &board.api, "gpu", &["gpu"], "host").await;
    let taken = board.submit().await;
    assert_eq!(board.claim().await, Some(taken));
    let kept = "select (select count(*) from queues) * 10 + (select count(*) from classes)";
    let _ = board.sweep().await;
    assert_eq!(board.number(kept).await, 22, "empty for a moment only");
    board.execute("update queues set changed_at = changed_at - interval '61 min'").await;
    let _ = board.sweep().await;
    assert_eq!(board.number(kept).await, 12, "the one in which a build waits");
    let _ = board.sweep().await;
    assert_eq!(board.number(kept).await, 11, "the class that has lost its queue goes with the next");
    let again = board.submit().await;
    assert_eq!(board.claim().await, Some(again), "a class that was forgotten is made anew");
    board.holds_together().await;
}
