//! Those who meet on one preview: exactly one wins, the others are told, and nothing is torn down twice.

use super::{FakeHost, board, destroy, holds_together, if_match, of, path, running, succeeded};
use futures::future::join_all;
use http::Method;
use rules::preview::{Order, Seen};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn of_extensions_and_destroys_of_one_version_exactly_one_wins() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    for _ in 0..10 {
        let build = running(&board, &mut host).await;
        let seen = of(&board, build).await;
        let (path, version) = (path(&seen), &seen["version"]);
        let extend = format!("{path}/extend");
        let calls = (0..8).map(|at| {
            let (method, path) = if at % 2 == 0 { (Method::POST, &extend) } else { (Method::DELETE, &path) };
            if_match(&board, method, path, version)
        });
        let answers = join_all(calls).await;
        let won = answers.iter().filter(|answer| answer.status.is_success()).count();
        let lost = answers.iter().filter(|answer| answer.said() == (412, "concurrent_update")).count();
        // A destroy that meets its own kind finds it done, if it looks at the version before that.
        assert_eq!((won, lost), (1, 7), "{answers:?}");
        assert_eq!(of(&board, build).await["version"].as_i64(), version.as_i64().map(|version| version + 1));
        destroy(&board, build).await;
        host.settle(&board).await;
    }
    holds_together(&board).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_and_the_clean_up_meet_and_one_of_them_wins_as_a_whole() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    for _ in 0..10 {
        let build = running(&board, &mut host).await;
        board.execute(&format!("update previews set expires_at = clock_timestamp() where build_id = '{build}'")).await;
        let seen = of(&board, build).await;
        let extend = format!("{}/extend", path(&seen));
        let (answer, _) = tokio::join!(if_match(&board, Method::POST, &extend, &seen["version"]), board.sweep());
        let after = of(&board, build).await;
        match answer.said() {
            (200, _) => assert_eq!(after["status"], "running"),
            (412, "concurrent_update") | (409, "preview_ended") => assert_eq!(after["status"], "destroying"),
            other => panic!("{other:?}"),
        }
        destroy(&board, build).await;
        host.settle(&board).await;
    }
    holds_together(&board).await;
}

/// A destroy holds the row while the sweep comes by: the sweep waits for nobody, and its next round has nothing left to do.
#[tokio::test]
async fn the_clean_up_passes_over_what_others_hold_and_comes_back_for_it() {
    let board = board().await;
    let build = running(&board, &mut FakeHost::of(&board)).await;
    board.execute("update previews set expires_at = clock_timestamp()").await;
    let mut tx = board.pool.begin().await.expect("a transaction");
    sqlx::query("select from previews for update").execute(&mut *tx).await.expect("locked");
    assert_eq!(board.sweep().await["previews_expired"], 0);
    tx.rollback().await.expect("let go");
    assert_eq!(of(&board, build).await["status"], "running");
    assert_eq!(board.sweep().await["previews_expired"], 1);
    assert_eq!(of(&board, build).await["status"], "destroying");
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeps_at_once_and_syncs_at_once_tear_each_down_once() {
    let board = board().await;
    board.plans("previews_max = 100").await;
    let mut host = FakeHost::of(&board);
    for _ in 0..20 {
        running(&board, &mut host).await;
    }
    let versions = "select sum(version)::bigint from previews";
    let before = board.number(versions).await;
    board.execute("update previews set expires_at = clock_timestamp()").await;
    let sweeps = join_all((0..4).map(|_| board.sweep())).await;
    let expired: i64 = sweeps.iter().filter_map(|swept| swept["previews_expired"].as_i64()).sum();
    assert_eq!(expired + board.sweep().await["previews_expired"].as_i64().unwrap_or(0), 20);
    let mut hosts = [host.clone(), host.clone(), host];
    join_all(hosts.iter_mut().map(|host| host.sync(&board))).await;
    join_all(hosts.iter_mut().map(|host| host.sync(&board))).await;
    assert_eq!(board.number("select count(*) from previews where status = 'destroyed'").await, 20);
    assert_eq!(board.number(versions).await - before, 60, "expired, destroying, destroyed: each once");
    holds_together(&board).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_sync_at_once_never_get_more_places_than_there_are() {
    let board = board().await;
    board.plans("previews_max = 5").await;
    let mut hosts: Vec<_> = (0..4).map(|at| FakeHost { id: format!("h{at}"), ..FakeHost::of(&board) }).collect();
    for host in &mut hosts {
        for _ in 0..4 {
            host.keep(succeeded(&board).await);
        }
    }
    for _ in 0..3 {
        join_all(hosts.iter_mut().map(|host| host.sync(&board))).await;
    }
    assert_eq!(board.number("select count(*) from previews where placed").await, 5);
    assert_eq!(board.number("select count(*) from previews where waiting_for = 'quota'").await, 11);
    assert_eq!(board.usage().await["previews"], 5);
    holds_together(&board).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_at_once_meets_no_deadlock_and_holds_together() {
    let board = board().await;
    board.plans("previews_max = 30").await;
    let mut hosts: Vec<_> = (0..3).map(|at| FakeHost { id: format!("h{at}"), ..FakeHost::of(&board) }).collect();
    let mut builds = Vec::new();
    for host in &mut hosts {
        for _ in 0..8 {
            let build = succeeded(&board).await;
            host.keep(build);
            builds.push(build);
        }
    }
    let paths = join_all(builds.iter().map(|build| async { path(&of(&board, *build).await) })).await;
    let work = async {
        for _ in 0..5 {
            join_all(hosts.iter_mut().map(|host| host.sync(&board))).await;
        }
    };
    let people = join_all(paths.iter().enumerate().map(|(at, path)| {
        let board = &board;
        async move {
            for _ in 0..3 {
                let extended = board.call(Method::POST, &format!("{path}/extend"), &board.api, &Value::Null).await;
                assert!(matches!(extended.said(), (200, _) | (409, "preview_ended")), "{extended:?}");
            }
            if at % 2 == 0 {
                let _ = board.call(Method::DELETE, path, &board.api, &Value::Null).await.ok();
            }
        }
    }));
    let sweeps = async {
        for _ in 0..5 {
            let _ = board.sweep().await;
        }
    };
    tokio::join!(work, people, sweeps);
    for host in &mut hosts {
        host.settle(&board).await;
    }
    assert_eq!(board.number("select deadlocks from pg_stat_database where datname = current_database()").await, 0);
    assert_eq!(board.number("select count(*) from previews where status = 'destroyed'").await, 12);
    assert_eq!(board.number("select count(*) from previews where status = 'running'").await, 12);
    holds_together(&board).await;
}

#[tokio::test]
async fn a_preview_destroyed_while_it_is_being_started_is_ended_by_the_host_that_starts_it() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Start));
    destroy(&board, build).await;
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Destroy), "it says that it runs, and is told otherwise");
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
    holds_together(&board).await;
}

/// The destroy comes between what a sync reads and what it writes.
#[tokio::test]
async fn a_destroy_in_the_middle_of_a_sync_is_not_undone_by_it() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.sync(&board).await;
    let preview = of(&board, build).await;
    let (mut tx, id) =
        (board.pool.begin().await.expect("a transaction"), preview["id"].as_str().expect("an id").to_owned());
    let lock = sqlx::AssertSqlSafe(format!(
        "update previews set status = 'destroying', placed = false, version = version + 1 where id = '{id}'"
    ));
    sqlx::query(lock).execute(&mut *tx).await.expect("destroyed");
    let says = host.says();
    assert_eq!(says.previews[0].state, Seen::Running);
    let sync = host.send(&board, &says);
    let commit = async {
        let waits =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        while board.number(waits).await == 0 {
            tokio::task::yield_now().await;
        }
        tx.commit().await.expect("committed");
    };
    let (answer, ()) = tokio::join!(sync, commit);
    let _ = answer.ok();
    assert_eq!(of(&board, build).await["status"], "destroying");
    assert_eq!(board.number("select count(*) from port_leases").await, 0);
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], json!("destroyed"));
    holds_together(&board).await;
}
