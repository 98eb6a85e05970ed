//! The reaper stops the tasks of builds that it has ended, where there is a cluster.

use super::cluster::{Cluster, NAME};
use super::{OnLambda, scheduled};
use crate::Board;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::task_stops;
use uuid::Uuid;

/// The reaper beside a cluster, on a board.
struct Scene {
    board: Board,
    cluster: Cluster,
    reaper: OnLambda,
}

impl Scene {
    async fn new() -> Self {
        let board = Board::new().await;
        let (cluster, url) = Cluster::start().await;
        let reaper = reaper(&board, &[("CALLBOARD_ECS_CLUSTER", NAME), ("AWS_ENDPOINT_URL_ECS", &url)]).await;
        Self { board, cluster, reaper }
    }

    async fn sweep(&mut self) -> Value {
        let [event, _] = scheduled();
        self.reaper.send(event).await
    }

    /// A build that was lost to its worker, and whose task runs on.
    async fn lost(&self, task: &str) -> Uuid {
        let build = self.board.running().await;
        self.board.age(build, 300).await;
        self.cluster.run(build, task);
        build
    }
}

async fn reaper(board: &Board, cluster: &[(&str, &str)]) -> OnLambda {
    let key = format!("test:{}", "07".repeat(32));
    let settings = [
        ("CALLBOARD_DATABASE_URL", board.shell.config.database_url.as_str()),
        ("CALLBOARD_SECRETS_KEY", key.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    ];
    OnLambda::run("reaper", &[&settings, cluster].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_a_lost_build_are_stopped_once_and_those_of_no_other() {
    let mut scene = Scene::new().await;
    let lost = scene.lost("lost-1").await;
    scene.cluster.run(lost, "lost-2");
    let (running, done) = (scene.board.running().await, scene.board.ended("failed").await);
    scene.cluster.run(running, "running");
    scene.cluster.run(done, "done");
    let swept = scene.sweep().await;
    assert_eq!((&swept["lost"], &swept["errors"]), (&json!(1), &json!(0)), "{swept}");
    assert_eq!(scene.cluster.listed(), [lost.to_string()]);
    assert_eq!(scene.cluster.stopped(), ["lost-1", "lost-2"]);
    let _ = scene.sweep().await;
    assert_eq!((scene.cluster.listed(), scene.cluster.stopped()), (vec![], vec![]), "it is known that they are");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_build_that_is_overdue_is_stopped_too() {
    let mut scene = Scene::new().await;
    let build = scene.board.running().await;
    scene.cluster.run(build, "overdue");
    scene.board.age(build, 24 * 3600).await;
    let _ = scene.board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
    assert_eq!(scene.sweep().await["overdue"], 1);
    assert_eq!(scene.cluster.stopped(), ["overdue"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_stopped_is_stopped_by_the_next_sweep_and_nothing_else_of_this_one_is_late() {
    for refused in ["ListTasks", "StopTask"] {
        let mut scene = Scene::new().await;
        let lost = scene.lost("lost").await;
        scene.cluster.refuse(&[refused]);
        let swept = scene.sweep().await;
        assert_eq!((&swept["lost"], &swept["errors"]), (&json!(1), &json!(1)), "{refused}: {swept}");
        assert_eq!(scene.board.build(lost).await["end_reason"], "worker_lost", "{refused}");
        scene.cluster.refuse(&[]);
        assert_eq!(scene.cluster.stopped(), Vec::<String>::new(), "{refused}");
        let swept = scene.sweep().await;
        assert_eq!((&swept["lost"], &swept["errors"]), (&json!(0), &json!(0)), "{refused}: {swept}");
        assert_eq!(scene.cluster.stopped(), ["lost"], "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_is_refused_asks_a_few_times_and_leaves_the_rest_to_the_next() {
    let mut scene = Scene::new().await;
    for number in 0..12 {
        let _ = scene.lost(&format!("lost-{number}")).await;
    }
    scene.cluster.refuse(&["ListTasks"]);
    assert_eq!(scene.sweep().await["errors"], 4);
    let asked = scene.cluster.listed().len();
    assert!((4..12).contains(&asked), "{asked} of 12");
    scene.cluster.refuse(&[]);
    assert_eq!(scene.sweep().await["errors"], 0);
    assert_eq!(scene.cluster.stopped().len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_asks_about_a_hundred_builds_and_the_next_about_the_rest() {
    let mut scene = Scene::new().await;
    scene.board.plans("running_max = 1000").await;
    for number in 0..103 {
        let _ = scene.lost(&format!("lost-{number}")).await;
    }
    assert_eq!(scene.sweep().await["lost"], 103);
    assert_eq!((scene.cluster.listed().len(), scene.cluster.stopped().len()), (100, 100));
    let _ = scene.sweep().await;
    assert_eq!((scene.cluster.listed().len(), scene.cluster.stopped().len()), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_ended_more_than_an_hour_ago_is_left_alone() {
    let mut scene = Scene::new().await;
    let (old, young) = (scene.lost("old").await, scene.lost("young").await);
    let _ = scene.board.sweep().await;
    scene.board.execute("alter table builds disable trigger builds_final_is_final").await;
    for (build, minutes) in [(old, 61), (young, 59)] {
        let earlier = format!("update builds set ended_at = ended_at - interval '{minutes} min' where id = '{build}'");
        scene.board.execute(&earlier).await;
    }
    let _ = scene.sweep().await;
    assert_eq!(scene.cluster.listed(), [young.to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_is_open_while_the_cluster_is_asked() {
    let mut scene = Scene::new().await;
    let lost = scene.lost("lost").await;
    let (board, cluster) = (&scene.board, &scene.cluster);
    let closed = cluster.open.acquire_many(100).await.expect("never closed");
    let [event, _] = scheduled();
    let looked = async {
        while cluster.asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(board.build(lost).await["end_reason"], "worker_lost", "it is final before anybody is asked");
        let busy = "select count(*) from pg_stat_activity where datname = current_database()
            and application_name = 'callboard' and pid <> pg_backend_pid() and (state <> 'idle' or backend_xid is not null)";
        while board.number(busy).await > 0 {
            tokio::task::yield_now().await;
        }
        drop(closed);
    };
    let (swept, ()) = tokio::join!(scene.reaper.send(event), looked);
    assert_eq!(swept["errors"], 0);
    assert_eq!(scene.cluster.stopped(), ["lost"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cluster_nobody_is_asked_and_nothing_is_noted() {
    let board = Board::new().await;
    let (cluster, url) = Cluster::start().await;
    for named in [
        &[("AWS_ENDPOINT_URL_ECS", url.as_str())][..],
        &[("AWS_ENDPOINT_URL_ECS", &url), ("CALLBOARD_ECS_CLUSTER", "")],
    ] {
        let mut reaper = reaper(&board, named).await;
        let build = board.running().await;
        board.age(build, 300).await;
        cluster.run(build, "other");
        let [event, _] = scheduled();
        assert_eq!(reaper.send(event).await["lost"], 1);
    }
    assert_eq!((cluster.listed(), cluster.stopped()), (vec![], vec![]));
    assert_eq!(board.number("select count(*) from task_stops").await, 0);
}

#[tokio::test]
async fn looking_for_builds_that_sweeps_have_ended_reads_no_other() {
    let board = Board::new().await;
    let build = board.running().await;
    let others = "insert into builds
            (workspace_id, class_id, status, end_reason, ended_at, charged_seconds, timeout_seconds, rules_version)
        select workspace_id, class_id, 'cancelled', 'user', now(), 0, 60, 1 from builds, generate_series(1, 5000)";
    board.execute(others).await;
    board.age(build, 300).await;
    assert_eq!(board.sweep().await["lost"], 1);
    board.execute("analyze builds").await;
    board.shell.store.close().await;
    let shell = edge::Shell::new(edge::Config::clone(&board.shell.config)).expect("settings of the test itself");
    let read = "select coalesce(sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)), 0)::bigint
        from pg_stat_user_tables where relname = 'builds'";
    board.execute("select pg_stat_force_next_flush()").await;
    let before = board.number(read).await;
    let found = task_stops::due(&shell.store, Duration::from_secs(3600), 100).await;
    assert_eq!(found.expect("found"), [build]);
    // A connection tells its counters when it is closed.
    shell.store.close().await;
    board.execute("select pg_stat_force_next_flush()").await;
    let after = board.number(read).await;
    assert!(after - before < 50, "{} rows were read", after - before);
}
