//! The shim as it is put into the image: without an interpreter and without libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds it as worker-image/Dockerfile does, but for its profile.
pub(crate) fn shim() -> PathBuf {
    let worker = Path::new(env!("CARGO_BIN_EXE_callboard-worker"));
    let target = worker.parent().and_then(Path::parent).unwrap().join("shim");
    let built = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--locked", "-p", "callboard-shim", "--bin", "callboard-shim"])
        .args(["--", "-C", "target-feature=+crt-static"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/callboard-shim")
}

#[test]
fn the_shim_needs_nothing_of_the_image_that_it_runs_in() {
    let program = std::fs::read(shim()).unwrap();
    let word = |at: usize| usize::from(u16::from_le_bytes([program[at], program[at + 1]]));
    let long = |at: usize| usize::try_from(u64::from_le_bytes(program[at..at + 8].try_into().unwrap())).unwrap();
    assert_eq!(&program[..6], b"\x7fELF\x02\x01", "ELF of 64 bits, little endian");
    let (headers, size, count) = (long(32), word(54), word(56));
    let kinds = (0..count).map(|number| headers + number * size).map(|at| (word(at), at));
    let (interpreter, dynamic) = (3, 2);
    for (kind, at) in kinds {
        assert_ne!(kind, interpreter, "it has an interpreter");
        if kind == dynamic {
            let (from, bytes) = (long(at + 8), long(at + 32));
            let needed = (from..from + bytes).step_by(16).filter(|entry| long(*entry) == 1).count();
            assert_eq!(needed, 0, "it needs libraries");
        }
    }
}
