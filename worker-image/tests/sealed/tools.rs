//! Programs outside of `/usr` that an operator has sandboxes see.

use crate::board::{job, step};
use crate::set_up;
use protocol::Status;
use protocol::log::Stream;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_finds_the_operators_tools_first_and_can_not_change_them() {
    let kept = tempfile::tempdir().unwrap();
    fs::set_permissions(kept.path(), Permissions::from_mode(0o755)).unwrap();
    let tools = kept.path().canonicalize().unwrap().join("tools");
    fs::create_dir_all(tools.join("bin")).unwrap();
    fs::write(kept.path().join("beside"), "not for builds").unwrap();
    for name in ["of-our-own", "true"] {
        let program = tools.join("bin").join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} by the operator\n")).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    }
    let tools = tools.to_str().unwrap();
    let Some((board, forge, _worker)) = set_up(&["--tools", tools]).await else { return };
    let looks = step(
        "look",
        &[
            "of-our-own; env true",
            &format!("touch {tools}/bin/x 2>/dev/null || echo read-only"),
            &format!("ls {tools}/.."),
            "command -v ls",
        ],
    );
    let mut own = step("own", &["of-our-own 2>/dev/null || echo a PATH of its own stays"]);
    own.env.insert("PATH".into(), "/usr/bin:/bin".into());
    let report = board.report(board.offer(job(&forge.url(), vec![looks, own]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert_eq!(
        board.log_of(Stream::Stdout),
        "of-our-own by the operator\ntrue by the operator\nread-only\ntools\n/usr/bin/ls\na PATH of its own stays\n"
    );
}
