//! What the preflight says where something is missing: a line that can be typed.

#[path = "../../tests/skipped.rs"]
mod skipped;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// What it says of Rust with a PATH of the system's alone.
fn said_of_rust(home: &Path) -> String {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/preflight"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", home)
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().find(|line| line.contains("Rust")).expect("a line about Rust").trim().to_owned()
}

#[test]
fn where_rust_is_missing_the_fix_is_a_command() {
    if ["/usr/bin/cargo", "/bin/cargo"].iter().any(|cargo| Path::new(cargo).exists()) {
        return skipped::skip("missing_rust", "cargo is the system's");
    }
    let home = tempfile::tempdir().expect("a directory");
    let said = said_of_rust(home.path());
    let fix = said.strip_prefix("missing  Rust").expect("it is missing").trim();
    assert!(fix.starts_with("curl ") || fix.starts_with("wget "), "{fix}");
    let parsed = Command::new("sh").args(["-n", "-c", fix]).status().expect("a shell");
    assert!(parsed.success(), "{fix}");
    let cargo = home.path().join(".cargo/bin/cargo");
    fs::create_dir_all(cargo.parent().expect("a directory")).expect("made");
    fs::write(&cargo, "").expect("written");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("set");
    assert_eq!(said_of_rust(home.path()), "missing  Rust         . \"$HOME/.cargo/env\"");
}
