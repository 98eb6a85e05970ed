//! What only containers have: images, and a daemon.

use crate::back_ends::{BackEnd, HOST_IMAGE};
use crate::board::{job, step};
use crate::set_up_in;
use protocol::Status;
use protocol::log::Stream;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_runs_in_an_image_that_has_no_library_of_ours() {
    let Some((board, forge, worker)) = set_up_in(BackEnd::Docker, &[]).await else { return };
    let mut bare = step("bare", &["cat hello.txt", "ls /lib64 /usr/lib | wc -l", "busybox | head -1 | cut -c1-7"]);
    bare.image = "callboard-test:busybox".into();
    let report = board.report(board.offer(job(&forge.url(), vec![bare]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert!(board.log_of(Stream::Stdout).contains("hello from the repository\n"), "{}", board.log());
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn both_back_ends_share_one_workspace() {
    let Some((board, forge, worker)) = set_up_in(BackEnd::Auto, &[]).await else { return };
    let mut contained = step("contained", &["cat here", "echo $FLAVOUR", "echo contained > there"]);
    contained.image = HOST_IMAGE.into();
    let steps =
        vec![step("sealed", &["echo sealed > here"]), contained, step("again", &["cat there; test ! -e /.dockerenv"])];
    let report = board.report(board.offer(job(&forge.url(), steps))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let stdout = board.log_of(Stream::Stdout);
    for line in ["sealed\n", "image\n", "contained\n"] {
        assert!(stdout.contains(line), "{line:?} is not in {stdout}");
    }
    assert_eq!(board.heard().claims[0].worker.isolation, ["bubblewrap", "docker"]);
    worker.is_tidy();
}
