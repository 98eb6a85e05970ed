//! Values out of the tree, each with a fault at its key where it is not what it should be. Reading goes on after a
//! fault, so that a person sees all of them at once.

use super::duration::parse_duration;
use super::fault::{Fault, Faults, Place};
use super::yaml::{Node, Value};
use crate::pipeline::Env;
use rules::pipeline::{ENV_MAX, is_env_name, is_env_value};

/// A value with its key: `steps[1].timeout`.
#[derive(Clone)]
pub(super) struct Field<'n> {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) node: &'n Node,
}

impl<'n> Field<'n> {
    pub(super) fn root(node: &'n Node) -> Self {
        Self { place: node.place, key: String::new(), node }
    }

    /// The last part of its key; of `env.A` that is `A`.
    pub(super) fn name(&self) -> &str {
        self.key.rsplit_once(SEPARATOR).map_or(&self.key, |(_, name)| name)
    }

    fn path(&self) -> String {
        self.key.replace(SEPARATOR, ".")
    }

    fn child(&self, name: &str) -> String {
        if self.key.is_empty() { name.to_owned() } else { format!("{}{SEPARATOR}{name}", self.key) }
    }
}

/// Between the parts of a key while it is built, since a name may hold a dot.
const SEPARATOR: char = '\u{1f}';

/// The fields of a map.
pub(super) struct Fields<'n> {
    owner: Field<'n>,
    entries: Vec<Field<'n>>,
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<Field<'n>> {
        self.entries.iter().find(|field| field.name() == name).cloned()
    }
}

/// Collects what is wrong.
#[derive(Default)]
pub(super) struct Reader {
    faults: Vec<Fault>,
}

impl Reader {
    /// `value` if nothing was wrong, else all that was, by line.
    pub(super) fn done<T>(mut self, value: T) -> Result<T, Faults> {
        self.faults.sort_by_key(|fault| fault.place);
        if self.faults.is_empty() { Ok(value) } else { Err(Faults(self.faults)) }
    }

    /// Notes a fault at a field.
    pub(super) fn refuse(&mut self, field: &Field<'_>, what: impl Into<String>) {
        self.faults.push(Fault { place: field.place, key: field.path(), what: what.into() });
    }

    /// Notes that a map lacks `name`.
    pub(super) fn missing(&mut self, fields: &Fields<'_>, name: &str) {
        let key = fields.owner.child(name).replace(SEPARATOR, ".");
        self.faults.push(Fault { place: fields.owner.place, key, what: "is missing".into() });
    }

    /// The entries of a map, all of them among `known`.
    pub(super) fn map<'n>(&mut self, field: &Field<'n>, known: &[&str]) -> Fields<'n> {
        let (fine, unknown): (Vec<_>, Vec<_>) =
            self.entries(field).into_iter().partition(|entry| known.contains(&entry.name()));
        for entry in unknown {
            self.refuse(&entry, format!("is not a key that belongs here; there are {}", known.join(", ")));
        }
        Fields { owner: field.clone(), entries: fine }
    }

    /// The entries of a map, whatever their names.
    pub(super) fn entries<'n>(&mut self, field: &Field<'n>) -> Vec<Field<'n>> {
        match &field.node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|(key, node)| Field { place: key.place, key: field.child(&key.text), node })
                .collect(),
            Value::Scalar { .. } | Value::List(_) => {
                self.refuse(field, "must be a map: lines of `key: value`");
                Vec::new()
            }
        }
    }

    /// The items of a list; a single text is a list of one.
    pub(super) fn items<'n>(&mut self, field: &Field<'n>) -> Vec<Field<'n>> {
        let item =
            |(at, node): (usize, &'n Node)| Field { place: node.place, key: format!("{}[{at}]", field.key), node };
        match &field.node.value {
            Value::List(items) => items.iter().enumerate().map(item).collect(),
            Value::Scalar { .. } => vec![field.clone()],
            Value::Map(_) => {
                self.refuse(field, "must be a list: lines of `- item`");
                Vec::new()
            }
        }
    }

    /// A text, a number or a word, as it stands in the file; not nothing.
    pub(super) fn text(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.value {
            Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null") => {
                self.refuse(field, "has no value");
                None
            }
            Value::Scalar { text, .. } => Some(text.clone()),
            Value::List(_) | Value::Map(_) => {
                self.refuse(field, "must be a single value");
                None
            }
        }
    }

    /// A text that `is` accepts; else a fault that repeats it, so not for what may be secret.
    pub(super) fn text_that(&mut self, field: &Field<'_>, is: impl Fn(&str) -> bool, what: &str) -> Option<String> {
        let text = self.text(field)?;
        if is(&text) {
            return Some(text);
        }
        self.refuse(field, format!("{} {what}", quoted(&text)));
        None
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, field: &Field<'_>) -> bool {
        let is_flag = |text: &str| matches!(text, "true" | "false");
        self.text_that(field, is_flag, "is neither true nor false").is_some_and(|text| text == "true")
    }

    /// A duration, in seconds.
    pub(super) fn duration(&mut self, field: &Field<'_>) -> Option<u32> {
        let text = self.text(field)?;
        match parse_duration(&text) {
            Ok(seconds) => Some(seconds),
            Err(bad) => {
                self.refuse(field, format!("{} {bad}", quoted(&text)));
                None
            }
        }
    }

    /// Variables by name.
    pub(super) fn env(&mut self, field: &Field<'_>) -> Env {
        let entries = self.entries(field);
        if entries.len() > ENV_MAX {
            self.refuse(field, format!("holds {} variables; at most {ENV_MAX}", entries.len()));
        }
        entries.iter().filter_map(|entry| self.variable(entry)).collect()
    }

    fn variable(&mut self, field: &Field<'_>) -> Option<(String, String)> {
        if !is_env_name(field.name()) {
            let what = "can't name a variable (a letter or _, then letters, digits and _; not CALLBOARD_…)";
            self.refuse(field, what);
        }
        let value = self.text(field)?;
        if !is_env_value(&value) {
            self.refuse(field, "holds a NUL, or more than 32 KiB");
        }
        Some((field.name().to_owned(), value))
    }
}

/// A short text in quotes, so that an error shows what it is about.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    if short == text { format!("{text:?}") } else { format!("{:?}", short + "…") }
}
