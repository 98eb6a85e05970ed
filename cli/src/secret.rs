//! `callboard secret`. A value comes from standard input or a file, never from an argument.

use crate::answer::Answer;
use crate::exit;
use crate::output::Output;
use crate::pipeline::segment;
use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use localstack::clean::plain;
use localstack::client::Client;
use localstack::input;
use localstack::spell::{ago, now};
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue, Secrets};
use reqwest::Method;
use rules::pipeline::{SECRET_MAX_BYTES, is_env_name};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr, stdin};
use std::path::{Path, PathBuf};

/// The most that is read of standard input: the longest value, and the end of its line.
const READ_MAX_BYTES: usize = SECRET_MAX_BYTES + 2;

/// `secret`.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set a secret. Its value is typed without being shown, or read from standard input or a file; never an argument, which
    /// every process of the machine could read.
    #[command(after_help = "Examples:
  callboard secret set TOKEN
  callboard secret set TOKEN < token.txt
  callboard secret set DEPLOY_KEY --file ~/.ssh/deploy

One newline at the end of standard input is dropped; a file is taken as it is.")]
    Set {
        /// Its name, also that of the variable.
        name: String,
        /// Where its value is.
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// All secrets, without their values.
    #[command(after_help = "Example:\n  callboard secret list")]
    List,
    /// Delete a secret.
    #[command(after_help = "Example:\n  callboard secret delete TOKEN")]
    Delete {
        /// Its name.
        name: String,
    },
}

/// Does it.
///
/// # Errors
///
/// If the value can't be read, or what the board says.
pub async fn run(command: SecretCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        SecretCommand::Set { name, file } => {
            let path = format!("secrets/{}", variable(&name)?);
            let value = SecretValue { value: Secret(value(file.as_deref()).await?) };
            let set: Answer<SecretName> = board.give(Method::PUT, &path, &value).await?;
            output.print(&set, |set| format!("secret {} is set", set.name))?;
        }
        SecretCommand::List => {
            let secrets: Answer<Secrets> = board.get("secrets").await?;
            output.print(&secrets, |secrets| {
                if secrets.secrets.is_empty() {
                    return "no secrets yet; set one with `callboard secret set NAME`".into();
                }
                let row = |secret: &SecretName| vec![plain(&secret.name), ago(secret.updated_at, now())];
                output.table(&["NAME", "SET"], &secrets.secrets.iter().map(row).collect::<Vec<_>>())
            })?;
        }
        SecretCommand::Delete { name } => {
            board.send::<()>(board.request(Method::DELETE, &format!("secrets/{}", segment(&name)?))).await?;
            output.done(&format!("secret {name} is deleted"))?;
        }
    }
    Ok(0)
}

/// A name that a variable can have; asked before the value is, so that nobody types one in vain.
fn variable(name: &str) -> anyhow::Result<&str> {
    if is_env_name(name) {
        return Ok(name);
    }
    bail!("{:?} can't name a secret: a letter or _, then letters, digits and _; not CALLBOARD_…", plain(name))
}

async fn value(file: Option<&Path>) -> anyhow::Result<String> {
    let value = match file {
        Some(path) => in_file(path)?,
        None if stdin().is_terminal() => without_newline(typed().await?),
        None => without_newline(input::standard(READ_MAX_BYTES).context("the value on standard input can't be read")?),
    };
    ensure!(!value.is_empty(), "the value is empty; delete a secret with `callboard secret delete`");
    ensure!(value.len() <= SECRET_MAX_BYTES, "the value is longer than {} KiB", SECRET_MAX_BYTES / 1024);
    Ok(value)
}

/// A file as it is: a key's last newline is part of it.
pub(crate) fn in_file(path: &Path) -> anyhow::Result<String> {
    input::file(path, SECRET_MAX_BYTES).with_context(|| format!("{} can't be a secret's value", path.display()))
}

/// Secrets given with a command: `names` with the values that the environment holds, `files` as NAME=FILE.
///
/// # Errors
///
/// What can't be a name, is not set, or can't be read. No value is repeated.
pub fn given(
    names: &[String],
    files: &[String],
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<BTreeMap<String, Secret>> {
    let mut given = BTreeMap::new();
    for name in names {
        // What follows an equals sign may be a value.
        if let Some((name, _)) = name.split_once('=') {
            let name = plain(name);
            bail!(
                "--secret takes a name alone, since others can read arguments: put the value into the environment variable \
                 {name}, then type --secret {name}"
            );
        }
        let value = environment(variable(name)?).filter(|value| !value.is_empty());
        let value = value.with_context(|| format!("--secret {name}: the environment variable {name} is not set"))?;
        ensure!(value.len() <= SECRET_MAX_BYTES, "{name} is longer than {} KiB", SECRET_MAX_BYTES / 1024);
        given.insert(name.clone(), Secret(value));
    }
    for file in files {
        let (name, path) = file.split_once('=').context("--secret-file takes NAME=FILE")?;
        let value = in_file(Path::new(path))?;
        ensure!(!value.is_empty(), "{} is empty", plain(path));
        given.insert(variable(name)?.to_owned(), Secret(value));
    }
    Ok(given)
}

/// One newline at the end is the shell's or the keyboard's, not the secret's.
fn without_newline(text: String) -> String {
    text.strip_suffix('\n').map_or_else(|| text.clone(), |text| text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// A line that is typed without being shown. Whatever ends it, the terminal shows again what is typed.
async fn typed() -> anyhow::Result<String> {
    write!(stderr(), "Value (not shown): ")?;
    let shown = termios::tcgetattr(stdin())?;
    let mut hidden = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    termios::tcsetattr(stdin(), SetArg::TCSAFLUSH, &hidden)?;
    let restore = Restore(shown);
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        stdin().read_line(&mut line).map(|_| line)
    });
    let line = tokio::select! {
        line = reading => Some(line),
        _ = tokio::signal::ctrl_c() => None,
    };
    drop(restore);
    localstack::say::err("");
    match line {
        Some(line) => Ok(line??),
        // The thread that reads would keep the process until the next Enter.
        None => std::process::exit(exit::INTERRUPTED.into()),
    }
}

struct Restore(Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(stdin(), SetArg::TCSANOW, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_dropped_and_no_more() {
        let kept = ["a\n", "a\r\n", "a\n\n", "a", "\n"].map(|text| without_newline(text.into()));
        assert_eq!(kept, ["a", "a", "a\n", "a", ""]);
    }

    #[test]
    fn a_secret_of_a_command_comes_from_the_environment_or_a_file_and_never_from_an_argument() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "line\n").unwrap();
        let environment = |name: &str| (name == "TOKEN").then(|| "t0ken".to_owned());
        let given = |names: &[&str], files: &[String]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            super::given(&names, files, environment).map_err(|error| format!("{error:#}"))
        };
        let both = given(&["TOKEN"], &[format!("KEY={}", file.display())]).unwrap();
        assert_eq!(
            both,
            [("TOKEN", "t0ken"), ("KEY", "line\n")].map(|(name, value)| (name.into(), Secret(value.into()))).into()
        );
        for (names, files, said) in [
            (&["TOKEN=hunter2"][..], &[][..], "put the value into the environment variable TOKEN"),
            (&["OTHER"], &[], "the environment variable OTHER is not set"),
            (&["a-b"], &[], "can't name a secret"),
            (&[], &["KEY".to_owned()], "NAME=FILE"),
            (&[], &["KEY=/dev/zero".to_owned()], "/dev/zero can't be a secret's value: larger than 64 KiB"),
            (&[], &["KEY=/dev/null".to_owned()], "/dev/null is empty"),
        ] {
            let refused = given(names, files).unwrap_err();
            assert!(refused.contains(said) && !refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_secret_is_named_like_a_variable() {
        assert!(variable("TOKEN_1").is_ok());
        assert!(["1A", "a-b", "CALLBOARD_X", ""].iter().all(|name| variable(name).is_err()));
    }
}
