//! The tests of this binary, where they can't run.

use std::process::{Command, Output};

/// Runs one of the other tests with so few descriptors that no worker would begin.
fn unfit(settings: &[(&str, &str)]) -> Output {
    let mut test = Command::new("/bin/sh");
    test.args(["-c", "ulimit -n 100; exec \"$0\" --exact source::bubblewrap::a_ref_that_does_not_exist_is_named"]);
    test.arg(std::env::current_exe().unwrap())
        .env_remove("CALLBOARD_REQUIRE_SANDBOX")
        .env_remove("CALLBOARD_TEST_SANDBOX");
    test.envs(settings.iter().copied()).output().unwrap()
}

#[test]
fn a_test_that_can_not_run_is_listed_and_fails_where_it_is_required() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("skipped");
    let listed = unfit(&[("CALLBOARD_SKIPPED", list.to_str().unwrap())]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stdout));
    let list = std::fs::read_to_string(list).unwrap();
    let expected =
        "SKIPPED for want of sandbox: callboard-worker source::bubblewrap::a_ref_that_does_not_exist_is_named: ";
    assert!(list.starts_with(expected) && list.contains("open files") && list.lines().count() == 1, "{list}");
    assert!(!unfit(&[("CALLBOARD_REQUIRE_SANDBOX", "1")]).status.success());
}
