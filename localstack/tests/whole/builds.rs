//! Builds, from their submission to their end.

use crate::scene::Scene;
use protocol::build::StepStatus;
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use protocol::{EndReason, Status};
use reqwest::Method;

#[tokio::test]
async fn a_build_runs_its_steps_at_the_exact_commit_with_its_secret_masked() {
    let Some(mut scene) = Scene::set().await else { return };
    let value = SecretValue { value: Secret("hunter2-hunter2".into()) };
    let _: SecretName = scene.client.give(Method::PUT, "secrets/TOKEN", &value).await.expect("set");
    let steps = r#""secrets": ["TOKEN"], "steps": [
        { "name": "read", "commands": ["cat word", "echo \"$CALLBOARD_COMMIT\"", "echo $TOKEN", "test $TOKEN = hunter2-hunter2"] },
        { "name": "fail", "commands": ["exit 7"] },
        { "name": "never", "commands": ["true"] }]"#;
    // The value stands in a command too, which the log repeats: masked there as well.
    scene.apply(steps).await;
    scene.start_worker();
    let id = scene.submit().await;
    let build = scene.ended(id).await;
    let log = scene.log(id).await;
    assert_eq!((build.status, build.end_reason), (Status::Failed, Some(EndReason::StepFailed)), "{log}");
    let steps: Vec<_> = build.steps.iter().map(|step| (step.status, step.exit_code)).collect();
    let expected = [(StepStatus::Success, Some(0)), (StepStatus::Failed, Some(7)), (StepStatus::Skipped, None)];
    assert_eq!(steps, expected);
    assert!(log.contains("first\n") && log.contains(build.commit.as_deref().expect("a commit")), "{log}");
    assert!(!log.contains("hunter2-hunter2"), "{log}");
    let again = scene.post(id, "retry").await.id;
    let second = scene.ended(again).await;
    assert_eq!((second.retry_of, second.commit), (Some(id), build.commit));
    scene.end().await;
}

#[tokio::test]
async fn a_running_build_is_cancelled_and_one_that_waits_never_starts() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""steps": [{ "name": "long", "commands": ["trap '' TERM; sleep 600 & wait; sleep 600"] }]"#).await;
    scene.start_worker();
    let (running, waiting) = (scene.submit().await, scene.submit().await);
    scene.until(running, |build| build.phase.as_deref() == Some("long")).await;
    scene.sees_the_step("sleep\x00600\x00").await;
    let cancelled = scene.post(waiting, "cancel").await;
    assert_eq!((cancelled.status, cancelled.charged_seconds), (Status::Cancelled, Some(0)));
    scene.post(running, "cancel").await;
    let ended = scene.ended(running).await;
    assert_eq!((ended.status, ended.end_reason), (Status::Cancelled, Some(EndReason::User)));
    scene.end().await;
}

#[tokio::test]
async fn a_deadline_times_a_build_out_and_it_pays_for_that_time() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""timeout_seconds": 3, "steps": [{ "name": "long", "commands": ["sleep 600"] }]"#).await;
    scene.start_worker();
    let id = scene.submit().await;
    let build = scene.ended(id).await;
    assert_eq!((build.status, build.end_reason), (Status::TimedOut, Some(EndReason::Deadline)));
    assert_eq!((build.max_duration_seconds, build.charged_seconds), (Some(3), Some(3)));
    scene.end().await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_reports_its_build_and_the_board_goes_on() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""steps": [{ "name": "long", "commands": ["sleep 600"] }]"#).await;
    scene.start_worker();
    let id = scene.submit().await;
    scene.until(id, |build| build.phase.as_deref() == Some("long")).await;
    scene.stack.stop_worker().await;
    let build = scene.client.build(id).await.expect("read");
    assert_eq!((build.status, build.end_reason), (Status::Failed, Some(EndReason::WorkerShutdown)));
    scene.end().await;
}
