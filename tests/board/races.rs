//! Many at once: claimers on one queue and on many, the same claim twice, cancels beside claims, chunks beside chunks.

use crate::Board;
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Sixteen claimers take until each has seen a 204; the builds they got, in no order. A 204 while builds wait that may
/// run is a failure.
async fn drain(board: &Board, complete: bool) -> Vec<Uuid> {
    let claimer = || async {
        let mut got = Vec::new();
        loop {
            let answer = board.claim_as(&board.worker, Uuid::new_v4()).await;
            if answer.status == StatusCode::NO_CONTENT {
                return got;
            }
            let build = answer.id();
            got.push(build);
            if complete {
                let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
            }
        }
    };
    join_all((0..16).map(|_| claimer())).await.concat()
}

fn is_set(builds: &[Uuid]) -> bool {
    builds.iter().collect::<BTreeSet<_>>().len() == builds.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_claimers_on_one_queue_take_every_build_once() {
    let board = Board::new().await;
    board.plans("running_max = 1000, seconds_per_month = 10000000").await;
    for _ in 0..200 {
        board.submit().await;
    }
    let taken = drain(&board, false).await;
    assert_eq!(taken.len(), 200, "no false 204, nothing left");
    assert!(is_set(&taken), "no build twice");
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_claimers_on_sixty_four_queues_take_and_end_every_build_once() {
    let board = Board::new().await;
    let mut submitted = 0;
    for tenant in 0..64 {
        let plan = json!({ "minutes_per_month": 1000, "running_max": 2 });
        let api = board.tenant(&format!("t{tenant}"), plan).await;
        for _ in 0..4 {
            board.submit_as(&api).await;
            submitted += 1;
        }
    }
    let taken = drain(&board, true).await;
    assert_eq!(taken.len(), submitted);
    assert!(is_set(&taken));
    assert_eq!(board.number("select count(*) from charges").await, i64::try_from(submitted).expect("small"));
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_workspace_runs_or_reserves_above_its_plan_however_many_claim() {
    let board = Board::new().await;
    for (tenant, plan, expected) in [
        ("three-at-once", json!({ "minutes_per_month": 1000, "running_max": 3 }), 3),
        ("minutes-for-two", json!({ "minutes_per_month": 75, "running_max": 50 }), 2),
    ] {
        let api = board.tenant(tenant, plan).await;
        for _ in 0..20 {
            board.submit_as(&api).await;
        }
        let taken = drain(&board, false).await;
        assert_eq!(taken.len(), expected, "{tenant}");
        board.holds_together().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_claim_id_at_once_gets_one_build() {
    let board = Board::new().await;
    for _ in 0..20 {
        board.submit().await;
    }
    for _ in 0..5 {
        let claim = Uuid::new_v4();
        let answers = join_all((0..8).map(|_| board.claim_as(&board.worker, claim))).await;
        let builds: BTreeSet<_> = answers.into_iter().map(crate::scenario::Answer::id).collect();
        assert_eq!(builds.len(), 1);
    }
    assert_eq!(board.number("select count(*) from builds where status = 'running'").await, 5);
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_beside_a_claim_leaves_one_truth() {
    let board = Board::new().await;
    for _ in 0..20 {
        let build = board.submit().await;
        let cancel = format!("/api/v1/builds/{build}/cancel");
        let (claimed, cancelled) =
            tokio::join!(board.claim(), board.call(Method::POST, &cancel, &board.api, &Value::Null));
        let seen = cancelled.ok();
        match claimed {
            Some(taken) => {
                assert_eq!(taken, build);
                assert_eq!((&seen["status"], &seen["cancel_requested"]), (&json!("running"), &json!(true)));
                let _ = board.complete(build, &json!({ "status": "cancelled", "ran_ms": 1 })).await.ok();
            }
            None => assert_eq!(seen["status"], "cancelled"),
        }
        board.holds_together().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_complete_at_once_charges_once_and_another_outcome_loses() {
    let board = Board::new().await;
    for _ in 0..10 {
        let build = board.running().await;
        board.age(build, 5).await;
        let (success, failed) =
            (json!({ "status": "success", "ran_ms": 2000 }), json!({ "status": "failed", "ran_ms": 1000 }));
        let reports = [&success, &failed, &success, &failed];
        let answers = join_all(reports.map(|report| board.complete(build, report))).await;
        let won = board.build(build).await["status"].clone();
        for (report, answer) in reports.iter().zip(answers) {
            match answer.said() {
                (200, _) => assert_eq!(report["status"], won),
                (409, "build_ended") => assert_ne!(report["status"], won),
                // Told to try again, which finds the truth.
                (503, "unavailable") => {}
                other => panic!("{other:?}"),
            }
        }
    }
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_beside_each_other_and_beside_completes_end_every_build_once() {
    let board = Board::new().await;
    let mut builds = Vec::new();
    for _ in 0..30 {
        builds.push(board.running().await);
    }
    board.execute("update builds set started_at = started_at - interval '300 s', lease_expires_at = lease_expires_at - interval '300 s'").await;
    let reports = builds.iter().map(|build| async {
        let answer = board.complete(*build, &json!({ "status": "success", "ran_ms": 1 })).await;
        assert!(matches!(answer.said(), (200, _) | (409, "build_ended") | (503, "unavailable")), "{answer:?}");
    });
    let sweeps = join_all([board.sweep(), board.sweep(), board.sweep()]);
    tokio::join!(join_all(reports), sweeps);
    assert_eq!(board.number("select count(*) from builds where status = 'running'").await, 0);
    assert_eq!(board.number("select count(*) from charges").await, 30);
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_batch_at_once_is_stored_once() {
    let board = Board::new().await;
    let build = board.running().await;
    for round in 0..10 {
        let first = round * 3 + 1;
        let chunks = [(first, "a"), (first + 1, "b"), (first + 2, "c")];
        let answers = join_all((0..4).map(|_| board.send_logs(build, &chunks))).await;
        let stored: u64 = answers.into_iter().map(|answer| answer.ok()["stored"].as_u64().expect("a count")).sum();
        assert_eq!(stored, 3);
    }
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_race_for_the_same_numbers_leave_no_hole_and_no_mixture() {
    let board = Board::new().await;
    let build = board.running().await;
    for round in 0..10 {
        let next = u64::try_from(board.number("select max(next_seq) from log_heads").await).expect("positive");
        let (a, b) = ([(next, "a"), (next + 1, "a")], [(next, "b"), (next + 1, "b"), (next + 2, "b")]);
        let (first, second) = tokio::join!(board.send_logs(build, &a), board.send_logs(build, &b));
        let won = [&first, &second].iter().filter(|answer| answer.status == StatusCode::OK).count();
        assert_eq!(won, 1, "round {round}");
        let lost = if first.status == StatusCode::OK { second } else { first };
        assert_eq!(lost.said(), (409, "seq_conflict"), "round {round}");
    }
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_idempotency_key_at_once_makes_one_build() {
    let board = Board::new().await;
    let submit = || async {
        let request = http::Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", "application/json")
            .header("idempotency-key", "one")
            .body(axum::body::Body::from("{\"pipeline\": \"main\"}"))
            .expect("a request");
        board.send(request).await.id()
    };
    let builds: BTreeSet<_> = join_all((0..12).map(|_| submit())).await.into_iter().collect();
    assert_eq!(builds.len(), 1);
    assert_eq!(board.number("select count(*) from builds").await, 1);
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_order_and_queue_order_agree() {
    let board = Board::new().await;
    join_all((0..40).map(|_| board.submit())).await;
    let mut last = 0;
    for _ in 0..40 {
        let build = board.claim().await.expect("a build");
        let number = board.number(&format!("select number from builds where id = '{build}'")).await;
        assert!(number > last);
        last = number;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_rows_others_hold_is_waited_for_not_called_empty() {
    let board = Board::new().await;
    board.submit().await;
    let mut holder = board.pool.begin().await.expect("a transaction");
    let held = sqlx::query("select from workspaces for no key update").execute(&mut *holder).await;
    held.expect("held");
    let claiming = board.claim();
    let releasing = async {
        while board.number("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").await == 0 {
            tokio::task::yield_now().await;
        }
        holder.rollback().await.expect("released");
    };
    let (claimed, ()) = tokio::join!(claiming, releasing);
    assert!(claimed.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_at_once_is_one_build_also_where_the_plan_has_one_place() {
    let board = Board::new().await;
    board.plans("pending_max = 1").await;
    let submit = || async {
        let request = http::Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", "application/json")
            .header("idempotency-key", "one")
            .body(axum::body::Body::from("{\"pipeline\": \"main\"}"))
            .expect("a request");
        board.send(request).await.id()
    };
    let builds: BTreeSet<_> = join_all((0..12).map(|_| submit())).await.into_iter().collect();
    assert_eq!(builds.len(), 1);
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_are_served_together_keep_every_limit() {
    let board = Board::new().await;
    board.plans("running_max = 3").await;
    for _ in 0..10 {
        board.submit().await;
    }
    let small = board.tenant("small", json!({ "minutes_per_month": 70, "running_max": 10 })).await;
    for _ in 0..10 {
        board.submit_as(&small).await;
    }
    let taken = drain(&board, false).await;
    assert_eq!(taken.len(), 3 + 2, "three may run, and 70 minutes cover two of 30");
    assert!(is_set(&taken));
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_on_one_build_at_once_end_it_once_and_the_others_hear_how() {
    let board = Board::new().await;
    for _ in 0..10 {
        let build = board.running().await;
        let reports = (0..8).map(|number| {
            let status = if number % 2 == 0 { "success" } else { "failed" };
            json!({ "status": status, "ran_ms": 1 })
        });
        let reports: Vec<_> = reports.collect();
        let answers = join_all(reports.iter().map(|report| board.complete(build, report))).await;
        let said: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        let won = said.iter().position(|status| *status == 200).expect("one that ended it");
        for (number, status) in said.iter().enumerate() {
            assert_eq!(*status, if number % 2 == won % 2 { 200 } else { 409 }, "{said:?}");
        }
    }
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_report_that_is_refused_does_not_keep_those_served_with_it() {
    let board = Board::new().await;
    let mut builds = Vec::new();
    for _ in 0..12 {
        builds.push(board.running().await);
    }
    let other = board.token(protocol::admin::TokenKind::Worker, None).await;
    let call = |number: usize| {
        let (board, build, other) = (&board, builds[number], &other);
        async move {
            let path = format!("/internal/worker/builds/{build}/complete");
            let (token, report) = match number % 4 {
                0 => (&board.worker, json!({ "status": "success", "ran_ms": 1 })),
                1 => (other, json!({ "status": "success", "ran_ms": 1 })),
                2 => (&board.worker, json!({ "status": "success", "ran_ms": 1, "last_seq": 5 })),
                _ => (&board.worker, json!({ "status": "cancelled", "ran_ms": 1 })),
            };
            board.call(Method::POST, &path, token, &report).await.status.as_u16()
        }
    };
    let said = join_all((0..builds.len()).map(call)).await;
    assert_eq!(said, [200, 404, 409, 422].repeat(3));
    board.holds_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_whose_row_somebody_holds_keeps_no_other_from_ending_and_starting_builds() {
    let board = Board::new().await;
    let held = board.running().await;
    let api = board.tenant("umbrella", json!({ "minutes_per_month": 10_000, "running_max": 50 })).await;
    let mut others = Vec::new();
    for _ in 0..6 {
        board.submit_as(&api).await;
        others.push(board.claim().await.expect("a build"));
        board.submit_as(&api).await;
    }
    let mut holder = board.pool.begin().await.expect("a transaction");
    let locked =
        sqlx::query("select from workspaces where slug = 'acme' for no key update").execute(&mut *holder).await;
    locked.expect("held");
    let success = json!({ "status": "success", "ran_ms": 1 });
    let stuck = async { board.complete(held, &success).await.status.as_u16() };
    let ends = join_all(others.iter().map(|build| board.complete(*build, &success)));
    let starts = join_all((0..6).map(|_| board.claim()));
    let (stuck, ends, starts) = tokio::join!(stuck, ends, starts);
    assert_eq!(stuck, 503, "it may try again");
    assert!(ends.iter().all(|answer| answer.status == StatusCode::OK), "{ends:?}");
    assert!(starts.iter().all(Option::is_some), "{starts:?}");
    holder.rollback().await.expect("released");
    assert_eq!(board.complete(held, &success).await.status, StatusCode::OK);
    board.holds_together().await;
}
