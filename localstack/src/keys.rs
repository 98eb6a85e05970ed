//! Secrets of the stack, each in a file that only its owner can read, made once.

use crate::input;
use anyhow::Context as _;
use rand::TryRngCore as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// `bytes` random bytes, as hex digits.
///
/// # Errors
///
/// If the operating system has no randomness.
pub fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0; bytes];
    rand::rngs::OsRng.try_fill_bytes(&mut random).context("the operating system gives no random bytes")?;
    Ok(hex::encode(random))
}

/// What is in the file, or what `make` makes, kept there from now on.
///
/// # Errors
///
/// If it can't be read or written.
pub fn kept(path: &Path, make: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<String> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let text = make()?;
    write(path, &text)?;
    Ok(text)
}

/// What is in the file; `None` if there is none.
///
/// # Errors
///
/// If it can't be read.
pub fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match input::file(path, input::SETTINGS_MAX_BYTES) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
///
/// # Errors
///
/// If it can't be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        fs::remove_file(&new)
            .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("{} can't be written", path.display()))
}
