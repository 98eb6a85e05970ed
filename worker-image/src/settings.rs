//! `worker.toml`: every setting of a worker in a file.
//!
//! What the file says becomes the default of the option whose name it has, so that an option goes before the environment, the
//! environment before the file, and no setting is known to one of them only.

use crate::cli::Cli;
use crate::input;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// Where the file is looked for if nobody names one.
pub const DEFAULT_FILE: &str = "/etc/callboard/worker.toml";
/// Options that are no settings.
const NO_SETTINGS: [&str; 2] = ["config", "json"];

/// What is wrong with a file: where, and how to mend it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Bad {
    /// It can't be read.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        why: String,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}: {why}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What, with the key.
        why: String,
    },
}

/// What a file says: the words of each option, by the option's name with `_` for `-`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Vec<String>>);

impl Settings {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// See [`Bad`].
    pub fn read(path: &Path) -> Result<Self, Bad> {
        let file = path.display().to_string();
        let text = input::text(path).map_err(|error| Bad::Unreadable { file: file.clone(), why: unread(&error) })?;
        Self::parse(&file, &text)
    }

    /// Reads `text`, which stands in `file`.
    ///
    /// # Errors
    ///
    /// See [`Bad`].
    pub fn parse(file: &str, text: &str) -> Result<Self, Bad> {
        let bad = |at: usize, why: String| Bad::Line { file: file.to_owned(), line: line(text, at), why };
        let table = DeTable::parse(text)
            .map_err(|error| bad(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        let (known, mut settings) = (known(), BTreeMap::new());
        for (key, value) in table.get_ref() {
            let name = key.get_ref().to_string();
            let arg = known.get(&name).ok_or_else(|| bad(key.span().start, unknown(&name)))?;
            let wrong = |why: String| bad(value.span().start, format!("{name}: {why}"));
            let words = words(arg, value.get_ref()).map_err(wrong)?;
            check(arg, &words).map_err(wrong)?;
            settings.insert(name, words);
        }
        Ok(Self(settings))
    }

    /// `command` with what the file says as the defaults of its options.
    #[must_use]
    pub fn defaults_of(&self, command: Command) -> Command {
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let command = self.of_one(command);
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| self.of_one(sub)))
    }

    fn of_one(&self, command: Command) -> Command {
        let has = |command: &Command, name: &str| command.get_arguments().any(|arg| arg.get_id() == name);
        self.0.iter().fold(command, |command, (name, words)| {
            if !has(&command, name) {
                return command;
            }
            // Clap wants defaults that live as long as the program.
            let words: Vec<&'static str> = words.iter().map(|word| &*word.clone().leak()).collect();
            command.mut_arg(name, |arg| arg.default_values(words))
        })
    }
}

/// The file to read: the one that was named, or the usual one if it is there.
#[must_use]
pub fn file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.try_exists().unwrap_or(true));
    named.map(Path::to_path_buf).or_else(usual)
}

/// All settings: the options of the commands that people use, by name.
fn known() -> BTreeMap<String, Arg> {
    let command = Cli::command();
    let commands = [&command].into_iter().chain(command.get_subcommands().filter(|command| !command.is_hide_set()));
    let options = commands.flat_map(Command::get_arguments);
    let settings = options.filter(|arg| arg.get_long().is_some() && !arg.is_hide_set());
    let named = settings.map(|arg| (arg.get_id().to_string(), arg.clone()));
    named.filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str())).collect()
}

fn words(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    if let DeValue::Array(values) = value
        && is_list(arg)
    {
        return values.iter().map(|value| word(value.get_ref())).collect();
    }
    word(value).map(|word| vec![word])
}

fn word(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Boolean(is) => Ok(is.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("must be a text or a whole number in decimal digits; a list only where an option may be repeated"
                .into())
        }
    }
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// Whether the option takes these words, as the command line would.
fn check(arg: &Arg, words: &[String]) -> Result<(), String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_switch = words.iter().all(|word| word == "true" || word == "false");
        return if is_switch { Ok(()) } else { Err("must be true or false".into()) };
    }
    let long = arg.get_long().unwrap_or_default();
    let line = words.iter().map(|word| format!("--{long}={word}"));
    let alone = Command::new("setting").no_binary_name(true).arg(arg.clone());
    alone.try_get_matches_from(line).map(drop).map_err(|error| said(&error.to_string()))
}

/// The line of an error of clap's that says what is wrong.
fn said(error: &str) -> String {
    let first = error.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

fn unknown(name: &str) -> String {
    match name {
        "token" => {
            "token: the token itself has no place in this file; name a file that holds it with token_file".into()
        }
        name => format!("{name}: there is no such setting; `callboard-worker run --help` names all, with _ for - here"),
    }
}

fn unread(error: &io::Error) -> String {
    format!("the settings can't be read: {error}")
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;
    use clap::FromArgMatches as _;

    const EXAMPLE: &str = include_str!("../worker.toml");

    fn bad(text: &str) -> String {
        Settings::parse("worker.toml", text).unwrap_err().to_string()
    }

    fn slots(file: &str, line: &[&str]) -> u32 {
        let command = Settings::parse("worker.toml", file).unwrap().defaults_of(Cli::command());
        let line = ["callboard-worker", "doctor"].iter().chain(line);
        let cli = Cli::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap();
        let cli::Command::Doctor(args) = cli.command else { panic!("another command") };
        args.slots
    }

    #[test]
    fn an_option_goes_before_the_file_and_the_file_before_the_default() {
        assert_eq!(slots("", &[]), 2);
        assert_eq!(slots("slots = 7\n", &[]), 7);
        assert_eq!(slots("slots = 7\n", &["--slots", "3"]), 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_line_and_key() {
        assert!(bad("slots = 1\nslot = 2\n").starts_with("worker.toml:2: slot: there is no such setting"));
        assert!(
            bad("\nslots = 0\n").starts_with("worker.toml:2: slots: invalid value '0'"),
            "{}",
            bad("\nslots = 0\n")
        );
        assert!(bad("slots = [1, 2]").starts_with("worker.toml:1: slots: must be"));
        assert!(bad("labels = [\"arch\"]").contains("must be KEY=VALUE"));
        assert!(bad("drain_timeout = 1.5").starts_with("worker.toml:1: drain_timeout: must be"));
        assert!(bad("name = \"a\"\nname = \"b\"").starts_with("worker.toml:2: "));
        assert!(bad("name = ").starts_with("worker.toml:1: "));
    }

    #[test]
    fn the_token_has_no_place_in_the_file_and_is_not_repeated() {
        let said = bad("token = \"a-token-of-somebody\"");
        assert!(said.contains("token_file") && !said.contains("a-token-of-somebody"), "{said}");
    }

    #[test]
    fn a_list_is_a_list() {
        let settings = Settings::parse("f", "labels = [\"a=b\", \"c=d\"]\nname = \"n\"").unwrap();
        assert_eq!(settings.0["labels"], ["a=b", "c=d"]);
        assert_eq!(Settings::parse("f", "labels = \"a=b\"").unwrap().0["labels"], ["a=b"]);
    }

    /// The example with its settings uncommented: they stand at the line's beginning, unlike the words about them.
    fn example() -> Settings {
        let uncommented = |line: &str| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with([' ', '#']) => format!("{setting}\n"),
            Some(_) | None => format!("{line}\n"),
        };
        Settings::parse("worker.toml", &EXAMPLE.lines().map(uncommented).collect::<String>()).unwrap()
    }

    #[test]
    fn the_example_has_every_setting_and_no_other() {
        let example: Vec<String> = example().0.into_keys().collect();
        assert_eq!(example, known().into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn the_example_says_the_defaults() {
        for (name, words) in example().0 {
            let known = known();
            let defaults = known[&name].get_default_values().iter().filter_map(|word| word.to_str());
            let defaults: Vec<&str> = defaults.collect();
            assert!(defaults.is_empty() || words == defaults, "{name} is {defaults:?}, not {words:?}");
        }
    }

    #[test]
    fn the_example_as_it_is_sets_nothing() {
        assert_eq!(Settings::parse("worker.toml", EXAMPLE).unwrap(), Settings::default());
    }

    #[test]
    fn every_setting_has_a_variable() {
        for (name, arg) in known() {
            assert!(arg.get_env().is_some(), "{name} has no variable");
        }
    }
}
