//! `callboard secret`. A value comes from standard input or a file, never from an argument.

use crate::args::SecretCommand;
use crate::output::{Output, ago, now};
use crate::pipeline::segment;
use anyhow::Context as _;
use localstack::client::Client;
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue, Secrets};
use reqwest::Method;
use std::io::{IsTerminal as _, Read as _, stdin};
use std::path::Path;

/// Does it.
///
/// # Errors
///
/// If the value can't be read, or what the board says.
pub async fn run(command: SecretCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        SecretCommand::Set { name, file } => {
            let path = format!("secrets/{}", segment(&name)?);
            let value = SecretValue { value: Secret(value(file.as_deref())?) };
            let set: SecretName = board.give(Method::PUT, &path, &value).await?;
            output.print(&set, |set| format!("secret {} is set", set.name))?;
        }
        SecretCommand::List => {
            let secrets: Secrets = board.get("secrets").await?;
            output.print(&secrets, |secrets| {
                let row = |secret: &SecretName| vec![secret.name.clone(), ago(secret.updated_at, now())];
                output.table(&["NAME", "SET"], &secrets.secrets.iter().map(row).collect::<Vec<_>>())
            })?;
        }
        SecretCommand::Delete { name } => {
            board.send::<()>(board.request(Method::DELETE, &format!("secrets/{}", segment(&name)?))).await?;
            println!("secret {name} is deleted");
        }
    }
    Ok(0)
}

/// The value; one newline at its end is the editor's, not the secret's.
fn value(file: Option<&Path>) -> anyhow::Result<String> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?,
        None if stdin().is_terminal() => typed()?,
        None => {
            let mut text = String::new();
            stdin().read_to_string(&mut text).context("the value on standard input is not text")?;
            text
        }
    };
    Ok(text.strip_suffix('\n').map_or_else(|| text.clone(), str::to_owned))
}

/// A line that is typed without being shown.
fn typed() -> anyhow::Result<String> {
    eprint!("Value (not shown): ");
    let shown = termios::tcgetattr(stdin())?;
    let mut hidden = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    termios::tcsetattr(stdin(), SetArg::TCSANOW, &hidden)?;
    let _restore = Restore(shown);
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    eprintln!();
    Ok(line)
}

struct Restore(Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(stdin(), SetArg::TCSANOW, &self.0);
    }
}
