//! The clone: private authority, passwords, refs, and what goes wrong with them.

use crate::board::{job, step};
use crate::forge::PASSWORD;
use crate::{BackEnd, set_up_in};
use protocol::worker::Secret;
use protocol::{EndReason, Status};

in_both! {
    the_password_is_the_clones_alone,
    a_clone_without_password_fails_and_asks_nobody,
    a_ref_that_does_not_exist_is_named,
    a_host_that_can_not_be_found_or_reached_is_named,
    the_exact_commit_is_fetched_where_one_is_given,
    submodules_come_where_they_are_asked_for,
    what_is_not_https_or_no_ref_is_not_even_tried,
}

async fn the_password_is_the_clones_alone(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let looks = [
        "grep -r clone-password / --include=* -s --exclude-dir=proc --exclude-dir=usr || echo not here",
        "env | grep -c clone-password || true",
    ];
    let mut private = job(&forge.private_url(), vec![step("look", &looks)]);
    private.clone_secret = Some(Secret(format!("robot:{PASSWORD}")));
    let report = board.report(board.offer(private)).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert_eq!(report.commit, Some(forge.commit.clone()));
    assert!(board.log().contains("not here\n") && !board.log().contains(PASSWORD), "{}", board.log());
    worker.is_tidy();
}

async fn a_clone_without_password_fails_and_asks_nobody(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let report = board.report(board.offer(job(&forge.private_url(), vec![step("never", &["true"])]))).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::CloneFailed)));
    worker.is_tidy();
}

async fn a_ref_that_does_not_exist_is_named(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut wrong = job(&forge.url(), vec![step("never", &["true"])]);
    wrong.git_ref = "no-such-branch".into();
    let report = board.report(board.offer(wrong)).await;
    assert_eq!(report.end_reason, Some(EndReason::CloneFailed));
    assert!(report.error_message.unwrap().contains("no-such-branch"));
    worker.is_tidy();
}

async fn a_host_that_can_not_be_found_or_reached_is_named(back_end: BackEnd) {
    let Some((board, _forge, worker)) = set_up_in(back_end, &[]).await else { return };
    for (url, told) in [
        ("https://nowhere.invalid/app.git", "network: nowhere.invalid: name not found\n"),
        ("https://10.0.0.1/app.git", "network: 10.0.0.1:443 (10.0.0.1) is not a public address"),
    ] {
        board.heard().chunks.clear();
        let report = board.report(board.offer(job(url, vec![step("never", &["true"])]))).await;
        assert_eq!(report.end_reason, Some(EndReason::CloneFailed));
        assert!(board.log().contains(told), "{}", board.log());
    }
    worker.is_tidy();
}

async fn the_exact_commit_is_fetched_where_one_is_given(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut again = job(&forge.url(), vec![step("only", &["git rev-parse HEAD"])]);
    again.git_ref = "no-such-branch-any-more".into();
    again.commit = Some(forge.commit.clone());
    let report = board.report(board.offer(again)).await;
    assert_eq!((report.status, report.commit), (Status::Success, Some(forge.commit.clone())), "{}", board.log());
    worker.is_tidy();
}

async fn submodules_come_where_they_are_asked_for(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let without = job(&forge.outer_url(), vec![step("only", &["test ! -e inner/hello.txt"])]);
    let mut with = job(&forge.outer_url(), vec![step("only", &["cat inner/hello.txt"])]);
    with.submodules = true;
    assert_eq!(board.report(board.offer(without)).await.status, Status::Success, "{}", board.log());
    board.heard().chunks.clear();
    assert_eq!(board.report(board.offer(with)).await.status, Status::Success, "{}", board.log());
    worker.is_tidy();
}

async fn what_is_not_https_or_no_ref_is_not_even_tried(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let plain = board.report(board.offer(job("file:///etc", vec![step("never", &["true"])]))).await;
    assert_eq!(plain.end_reason, Some(EndReason::CloneFailed));
    let mut option = job(&forge.url(), vec![step("never", &["true"])]);
    option.git_ref = "--upload-pack=x".into();
    assert_eq!(board.report(board.offer(option)).await.end_reason, Some(EndReason::CloneFailed));
    worker.is_tidy();
}
