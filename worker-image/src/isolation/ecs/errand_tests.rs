//! A build in its task, by an ECS that is told what to answer.

use super::*;
use crate::config::Grace;
use crate::isolation::ecs::stub::{Stub, ecs, job, step};
use protocol::CancelReason;
use std::sync::Arc;

struct Scene {
    stub: Arc<Stub>,
    ecs: Ecs,
    job: Job,
    lease: Lease,
    stop: Stop,
}

fn scene() -> Scene {
    let stub = Arc::<Stub>::default();
    let (ecs, job) = (ecs(&stub), job());
    let lease = Lease::new(&job, Boot::now(), Grace::default());
    Scene { stub, ecs, job, lease, stop: Stop::default() }
}

impl Scene {
    async fn run(&self) -> Result<Over, Fail> {
        self.ecs.run(&self.job, &self.lease, &self.stop).await
    }

    fn calls(&self, name: &str) -> usize {
        self.stub.count(name)
    }
}

#[tokio::test]
async fn a_task_is_started_once_and_waited_for() {
    let scene = scene();
    scene.stub.ends_at_once();
    let over = scene.run().await.unwrap();
    assert_eq!(over.seen.unwrap().status, "STOPPED");
    assert_eq!((scene.calls("RunTask"), scene.calls("StopTask")), (1, 0));
    assert_eq!(scene.lease.phase(), "starting a task");
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_starts_no_second_task() {
    let scene = scene();
    scene.stub.ends_at_once();
    scene.stub.lose_answer("RunTask");
    scene.stub.fail("RunTask", Trouble::Throttled("slow down".into()));
    assert!(scene.run().await.is_ok());
    assert_eq!((scene.calls("RunTask"), scene.stub.tasks()), (3, 1));
}

#[tokio::test]
async fn where_there_is_no_room_it_is_tried_anew_and_what_will_never_do_is_not() {
    let one = scene();
    one.stub.ends_at_once();
    one.stub.refuse_place("RESOURCE:MEMORY");
    assert!(one.run().await.is_ok());
    assert_eq!(one.stub.tokens().len(), 2, "the first token's answer stays what it was");
    let other = scene();
    other.stub.refuse_place("ATTRIBUTE");
    assert_eq!(other.run().await, Err(Fail::NeverStarted("ATTRIBUTE".into())));
    let third = scene();
    third.stub.fail("RunTask", Trouble::Refused("not authorized".into()));
    assert_eq!(third.run().await, Err(Fail::NeverStarted("not authorized".into())));
}

#[tokio::test]
async fn a_definition_that_was_taken_away_is_made_again() {
    let scene = scene();
    scene.stub.ends_at_once();
    scene.stub.forget_definition_at_run();
    assert!(scene.run().await.is_ok());
    assert_eq!(scene.calls("RegisterTaskDefinition"), 2);
}

#[tokio::test]
async fn what_a_task_can_not_do_starts_none() {
    let mut scene = scene();
    scene.job.steps = vec![step("a", "host")];
    assert!(matches!(scene.run().await, Err(Fail::Image(_))));
    assert_eq!(scene.calls("RunTask") + scene.calls("RegisterTaskDefinition"), 0);
}

#[tokio::test]
async fn a_build_that_is_to_stop_has_its_task_stopped_and_waits_for_its_end() {
    let scene = scene();
    let stopping = async {
        scene.stub.until_task().await;
        scene.stop.ask(Why::Cancel(CancelReason::User));
    };
    let (over, ()) = tokio::join!(scene.run(), stopping);
    assert_eq!(over.unwrap().seen.unwrap().status, "STOPPED");
    assert_eq!((scene.calls("StopTask"), scene.stop.why()), (1, Some(Why::Cancel(CancelReason::User))));
}

#[tokio::test]
async fn a_throttled_stop_is_asked_again() {
    let scene = scene();
    scene.stub.fail("StopTask", Trouble::Throttled("slow down".into()));
    let stopping = async {
        scene.stub.until_task().await;
        scene.stop.ask(Why::Deadline);
    };
    let (over, ()) = tokio::join!(scene.run(), stopping);
    assert!(over.unwrap().seen.is_some());
}

#[tokio::test]
async fn a_lost_build_is_not_waited_for_but_its_task_is_stopped() {
    let scene = scene();
    scene.stub.never_ends();
    let losing = async {
        scene.stub.until_task().await;
        scene.stop.ask(Why::Lost);
    };
    let (over, ()) = tokio::join!(scene.run(), losing);
    assert_eq!(over.unwrap().seen, None);
    assert!(scene.calls("StopTask") >= 1);
}

#[tokio::test]
async fn past_the_fence_the_task_is_stopped_without_being_asked() {
    let mut scene = scene();
    // Its lease was over before it began.
    scene.lease = Lease::new(&Job { lease_ttl_ms: 0, lease_grace_ms: 0, ..job() }, Boot(0), Grace::default());
    assert!(scene.run().await.unwrap().seen.is_some());
    assert_eq!((scene.calls("StopTask"), scene.stop.why()), (1, Some(Why::Fenced)));
}

#[tokio::test]
async fn a_build_that_is_to_stop_before_its_task_is_known_leaves_none() {
    let scene = scene();
    scene.stub.lose_answers("RunTask");
    let stopping = async {
        scene.stub.until_task().await;
        scene.stop.ask(Why::Shutdown);
    };
    let (over, ()) = tokio::join!(scene.run(), stopping);
    assert_eq!(over, Err(Fail::Stopped(Why::Shutdown)));
    assert_eq!((scene.calls("ListTasks"), scene.calls("StopTask")), (1, 1));
}

#[tokio::test]
async fn a_build_that_is_to_stop_before_starts_none() {
    let scene = scene();
    scene.stop.ask(Why::Deadline);
    assert_eq!(scene.run().await, Err(Fail::Stopped(Why::Deadline)));
    assert_eq!(scene.calls("RunTask"), 0);
}

#[tokio::test]
async fn tasks_of_builds_are_known_from_others() {
    let (scene, build) = (scene(), Uuid::now_v7());
    let ours = Seen {
        arn: "ours".into(),
        status: "RUNNING".into(),
        started_by: Some(build.to_string()),
        definition: Some("arn:aws:ecs:r:1:task-definition/callboard-0123:1".into()),
        ..Seen::default()
    };
    scene.stub.put(Seen { arn: "over".into(), status: "STOPPED".into(), ..ours.clone() });
    scene.stub.put(Seen { arn: "somebodys".into(), started_by: Some("ecs-svc/1".into()), ..ours.clone() });
    let other = Some("arn:aws:ecs:r:1:task-definition/web:1".into());
    scene.stub.put(Seen { arn: "another".into(), definition: other, ..ours.clone() });
    scene.stub.put(ours);
    assert_eq!(scene.ecs.started().await, Ok(vec![("ours".into(), build)]));
}
