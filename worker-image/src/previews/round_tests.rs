use super::*;
use crate::cli::{Cli, Command};
use clap::Parser as _;

/// A host that only recovers, with so many builds that are kept.
fn host(root: &std::path::Path, kept: u128) -> (Round, Vec<Folder>) {
    let (token, builds_root) = (root.join("token"), root.join("builds"));
    std::fs::write(&token, "t").unwrap();
    std::fs::create_dir(&builds_root).unwrap();
    let line = ["callboard-worker", "recover", "--api-url", "http://127.0.0.1:1", "--token-file"];
    let line = line.into_iter().chain([token.to_str().unwrap(), "--builds-root", builds_root.to_str().unwrap()]);
    let Command::Recover(args) = Cli::try_parse_from(line).unwrap().command else { panic!("another command") };
    let folders: Vec<Folder> = (1..=kept).map(|build| Folder::of(&builds_root, Uuid::from_u128(build))).collect();
    for folder in &folders {
        std::fs::create_dir(&folder.site).unwrap();
        folder.make(300).unwrap();
    }
    let users = Arc::new(Users::of(&builds_root).unwrap());
    (Round::new(Host::recovering(args.config().unwrap(), users, "h1".into()).unwrap()), folders)
}

fn order(build_id: Uuid, order: Order, version: i64) -> PreviewOrder {
    PreviewOrder { build_id, order, version: Some(version), run: None }
}

#[tokio::test]
async fn two_hundred_previews_are_told_in_one_call_and_two_thousand_in_two() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, _) = host(root.path(), 200);
    let syncs = round.syncs().await;
    assert_eq!(syncs.iter().map(|sync| sync.previews.len()).collect::<Vec<_>>(), [200]);
    let root = tempfile::tempdir().unwrap();
    let (mut round, _) = host(root.path(), 2000);
    let syncs = round.syncs().await;
    assert_eq!(syncs.iter().map(|sync| sync.previews.len()).collect::<Vec<_>>(), [1000, 1000]);
}

#[tokio::test]
async fn a_host_that_holds_none_asks_what_it_should_hold() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, _) = host(root.path(), 0);
    let syncs = round.syncs().await;
    assert_eq!((syncs.len(), syncs[0].previews.len(), syncs[0].host_id.as_str()), (1, 0, "h1"));
}

#[tokio::test]
async fn what_rests_has_its_turn_and_is_not_told_each_time() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, folders) = host(root.path(), 150);
    folders.iter().for_each(|folder| folder.say(&folder::of(folder.build, Seen::Destroyed)).unwrap());
    assert_eq!(round.syncs().await[0].previews.len(), 150, "the board's versions are not known yet");
    round.obey(folders.iter().map(|folder| order(folder.build, Order::Keep, 1)).collect());
    let told = |syncs: &[PreviewSync]| syncs[0].previews.iter().map(|report| report.build_id).collect::<Vec<_>>();
    let (first, second) = (told(&round.syncs().await), told(&round.syncs().await));
    assert_eq!((first.len(), second.len()), (100, 50));
    let all: BTreeSet<Uuid> = first.into_iter().chain(second).collect();
    assert_eq!(all.len(), 150);
}

#[tokio::test]
async fn an_order_about_a_build_that_is_not_here_is_answered_with_its_end() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, _) = host(root.path(), 0);
    let build = Uuid::from_u128(7);
    round.obey(vec![order(build, Order::Destroy, 4)]);
    let report = round.syncs().await[0].previews[0].clone();
    assert_eq!((report.build_id, report.state, report.version), (build, Seen::Destroyed, Some(4)));
    round.obey(vec![order(build, Order::Forget, 5)]);
    assert_eq!(round.syncs().await[0].previews, []);
}

#[tokio::test]
async fn what_a_service_wrote_is_told_once_and_again_with_a_new_version() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, folders) = host(root.path(), 1);
    let build = folders[0].build;
    let failed = PreviewReport { log_tail: Some("words\n".into()), ..folder::of(build, Seen::Failed) };
    folders[0].say(&failed).unwrap();
    for (version, told) in [(None, true), (Some(1), true), (Some(1), false), (Some(2), true), (Some(2), false)] {
        if let Some(version) = version {
            round.obey(vec![order(build, Order::Keep, version)]);
        }
        let report = round.syncs().await[0].previews[0].clone();
        assert_eq!((report.version, report.log_tail.is_some()), (version, told));
    }
}

#[tokio::test]
async fn a_destroy_ends_as_destroyed_and_a_forget_as_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, folders) = host(root.path(), 1);
    let build = folders[0].build;
    for (told, left) in [(Order::Destroy, Some(Seen::Destroyed)), (Order::Forget, None)] {
        round.syncs().await;
        round.obey(vec![order(build, told, 1)]);
        assert!(round.is_busy());
        round.obey(vec![order(build, told, 1)]);
        while round.is_busy() {
            round.changed().await;
        }
        let reports = round.syncs().await[0].previews.clone();
        assert_eq!(reports.first().map(|report| report.state), left);
    }
    assert!(!folders[0].site.exists());
}

#[tokio::test]
async fn a_directory_that_is_not_exactly_its_own_is_neither_removed_nor_forgotten() {
    let root = tempfile::tempdir().unwrap();
    let (mut round, folders) = host(root.path(), 1);
    let (site, elsewhere) = (&folders[0].site, root.path().join("elsewhere"));
    round.syncs().await;
    std::fs::rename(site, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, site).unwrap();
    round.obey(vec![order(folders[0].build, Order::Forget, 1)]);
    while round.is_busy() {
        round.changed().await;
    }
    assert!(elsewhere.join("preview/slot").exists());
    assert_eq!(round.syncs().await[0].previews.len(), 1, "it is told again");
}
