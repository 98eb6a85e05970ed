//! Clone, steps in order, the log, the report.

use crate::board::{job, step};
use crate::forge::{Forge, PASSWORD};
use crate::stage::Stage;
use protocol::EndReason;
use protocol::build::StepStatus;
use protocol::log::Stream;
use protocol::runner::Outcome;
use protocol::worker::Secret;

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_cloned_run_in_order_logged_and_reported() {
    let forge = Forge::start().await;
    let steps = vec![step("read", &["cat hello.txt", "echo to stderr >&2", "touch made"]), step("list", &["ls made"])];
    let mut stage = Stage::set(job(&forge.url(), steps), &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Success, None), "{}", stage.board.log());
    assert_eq!(report.commit.as_deref(), Some(forge.commit.as_str()));
    assert!(report.steps.iter().all(|step| step.status == StepStatus::Success && step.exit_code == Some(0)));
    assert_eq!(report.last_seq, u64::try_from(stage.board.heard().chunks.len()).unwrap());
    assert!(!report.logs_lost && report.tidied_ms.is_none());
    assert_eq!(stage.board.log_of(Stream::Stdout), "hello from the repository\nmade\n");
    assert_eq!(stage.board.log_of(Stream::Stderr), "to stderr\n");
    let system = stage.board.log_of(Stream::System);
    for line in ["Cloning https://", "Step 1/2: read", "$ cat hello.txt\n$ echo", "Step 2/2: list", "exit code 0 after"]
    {
        assert!(system.contains(line), "{line:?} is not in {system}");
    }
    assert_eq!(stage.codes(), [Some(0); 3]);
    // The claim was five seconds before the job was fetched.
    assert!(stage.board.heard().chunks.iter().all(|chunk| chunk.at_ms >= 5000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_step_that_fails_is_the_last() {
    let forge = Forge::start().await;
    let steps = vec![step("fails", &["exit 3"]), step("never", &["echo never"])];
    let mut stage = Stage::set(job(&forge.url(), steps), &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::StepFailed)));
    assert_eq!(report.error_message.as_deref(), Some("step \"fails\" ended with exit code 3"));
    let steps: Vec<_> = report.steps.iter().map(|step| (step.status, step.exit_code)).collect();
    assert_eq!(steps, [(StepStatus::Failed, Some(3)), (StepStatus::Skipped, None)]);
    assert!(!stage.board.log().contains("never"));
    assert_eq!(stage.codes(), [Some(0), Some(3), Some(0)], "what was not needed says so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_not_there_ends_the_build_before_its_steps() {
    let forge = Forge::start().await;
    let repository = forge.url().replace("app.git", "none.git");
    let mut stage = Stage::set(job(&repository, vec![step("never", &["echo never"])]), &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::CloneFailed)));
    assert_eq!((report.commit, report.steps[0].status), (None, StepStatus::Skipped));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clone_alone_has_its_password_and_no_secret_is_in_the_log() {
    let forge = Forge::start().await;
    let commands =
        ["echo \"key: $API_KEY\"", "find .. -name password 2>/dev/null", "env | grep -c clone-password || true"];
    let mut job = job(&forge.private_url(), vec![step("look", &commands)]);
    job.clone_secret = Some(Secret(format!("robot:{PASSWORD}")));
    job.secrets.insert("API_KEY".into(), Secret("hunter2-of-the-test".into()));
    let mut stage = Stage::set(job, &forge).await;
    assert_eq!(stage.report().outcome, Outcome::Success, "{}", stage.board.log());
    assert_eq!(stage.board.log_of(Stream::Stdout), "key: ***\n0\n");
    assert!(!stage.said().contains("hunter2") && !stage.said().contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_comes_whole_and_its_commands_where_they_belong() {
    let forge = Forge::start().await;
    let commands = ["seq 1 300000", "seq 1 100000 >&2", "echo end"];
    let mut stage = Stage::set(job(&forge.url(), vec![step("counts", &commands)]), &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.logs_lost), (Outcome::Success, false));
    let numbers = |last: u32| (1..=last).map(|number| format!("{number}\n")).collect::<String>();
    assert!(stage.board.log_of(Stream::Stdout) == numbers(300_000) + "end\n", "standard output");
    assert!(stage.board.log_of(Stream::Stderr) == numbers(100_000), "standard error");
    assert!(stage.board.log().contains("\n300000\n$ seq 1 100000 >&2\n1\n"), "the order of the two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_wants_a_network_of_its_own_is_refused() {
    let forge = Forge::start().await;
    let mut sealed = step("sealed", &["echo never"]);
    sealed.network = protocol::pipeline::Network::None;
    let mut stage = Stage::set(job(&forge.url(), vec![sealed]), &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::ImageFailed)));
    assert!(stage.board.log().contains("network: none"), "{}", stage.board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_with_more_steps_than_rooms_does_not_begin() {
    let forge = Forge::start().await;
    let steps = vec![step("one", &["echo never"]), step("two", &["echo never"])];
    let mut stage = Stage::of(job(&forge.url(), steps), &forge, 1, &[]).await;
    (0..=1).for_each(|number| stage.room(number));
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::NeverStarted)));
    assert!(report.error_message.unwrap().contains("containers for 1 steps"));
}
