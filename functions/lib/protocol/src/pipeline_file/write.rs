//! A pipeline as a file: what `callboard pipeline show --file` prints, and what a proposal for a repository is.

use super::duration::spell_duration;
use crate::pipeline::{DEFAULT_REF, Network, PipelineSpec, PreviewSpec, Step};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes a pipeline so that [`parse`](super::parse) reads the same. What is at its default is left out.
#[must_use]
pub fn write(slug: &str, spec: &PipelineSpec) -> String {
    let mut file = Lines::default();
    file.entry(0, "name", slug);
    file.entry(0, "repository", &spec.repository);
    if spec.default_ref != DEFAULT_REF {
        file.entry(0, "ref", &spec.default_ref);
    }
    file.timeout(0, spec.timeout_seconds);
    file.map(0, "env", &spec.env);
    file.list(0, "secrets", &spec.secrets);
    if let Some(secret) = &spec.clone_secret {
        file.entry(0, "clone_secret", secret);
    }
    file.list(0, "requires", &spec.requires);
    file.map(0, "registry_secrets", &spec.registry_secrets);
    if spec.submodules {
        file.line(0, "submodules: true");
    }
    file.line(0, "steps:");
    spec.steps.iter().for_each(|step| file.step(step));
    if let Some(preview) = &spec.preview {
        file.preview(preview);
    }
    file.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, indent: usize, text: &str) {
        // A String takes whatever is written to it.
        let _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    fn entry(&mut self, indent: usize, key: &str, value: &str) {
        self.line(indent, &format!("{}: {}", scalar(key), scalar(value)));
    }

    fn timeout(&mut self, indent: usize, seconds: Option<u32>) {
        if let Some(seconds) = seconds {
            self.entry(indent, "timeout", &spell_duration(seconds));
        }
    }

    fn map(&mut self, indent: usize, key: &str, entries: &BTreeMap<String, String>) {
        if entries.is_empty() {
            return;
        }
        self.line(indent, &format!("{key}:"));
        for (name, value) in entries {
            self.entry(indent + 2, name, value);
        }
    }

    fn list(&mut self, indent: usize, key: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.line(indent, &format!("{key}:"));
        for item in items {
            self.item(indent + 2, item);
        }
    }

    fn item(&mut self, indent: usize, item: &str) {
        if is_block(item) {
            self.line(indent, "- |-");
            item.lines().for_each(|line| self.line(indent + 2, line));
        } else {
            self.line(indent, &format!("- {}", scalar(item)));
        }
    }

    fn preview(&mut self, preview: &PreviewSpec) {
        self.line(0, "preview:");
        if preview.image != "host" {
            self.entry(2, "image", &preview.image);
        }
        self.line(2, &format!("port: {}", preview.port));
        self.entry(2, "health_path", &preview.health_path);
        self.entry(2, "ttl", &spell_duration(preview.ttl_seconds));
        if preview.retain_failed {
            self.line(2, "retain_failed: true");
        }
        self.map(2, "env", &preview.env);
        self.list(2, "run", &preview.commands);
    }

    fn step(&mut self, step: &Step) {
        self.line(2, &format!("- name: {}", scalar(&step.name)));
        if step.image != "host" {
            self.entry(4, "image", &step.image);
        }
        self.timeout(4, step.timeout_seconds);
        match step.network {
            Network::Isolated => {}
            Network::None => self.entry(4, "network", "none"),
        }
        if step.on_cancel {
            self.line(4, "on_cancel: true");
        }
        self.map(4, "env", &step.env);
        self.list(4, "run", &step.commands);
    }
}

/// Whether a text is best read as a block of lines, and survives that.
fn is_block(text: &str) -> bool {
    let plain = |line: &str| !line.contains(needs_escape) && !line.ends_with(' ');
    text.contains('\n') && !text.starts_with([' ', '\n']) && !text.ends_with('\n') && text.split('\n').all(plain)
}

/// A text as YAML: bare where nobody can take it for something else, else in the quotes that leave it readable.
fn scalar(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=' | ' ' | ',' | '$');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '$'));
    let is_address = text
        .strip_prefix("https://")
        .is_some_and(|rest| rest.chars().all(|c| bare(c) || c == ':') && !rest.ends_with(':'));
    let is_null = matches!(text, "null" | "~" | "");
    if is_address || (starts_well && !text.ends_with(' ') && text.chars().all(bare) && !is_null) {
        return text.to_owned();
    }
    if text.contains(needs_escape) {
        return format!("\"{}\"", text.chars().map(escaped).collect::<String>());
    }
    let quote = if text.contains(['"', '\\']) { "'" } else { "\"" };
    format!("{quote}{}{quote}", text.replace('\'', if quote == "'" { "''" } else { "'" }))
}

/// What a YAML reader takes for a line break, an encoding or an error.
fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

fn escaped(c: char) -> String {
    match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\n' => "\\n".into(),
        '\t' => "\\t".into(),
        c if needs_escape(c) => format!("\\U{:08x}", u32::from(c)),
        c => c.to_string(),
    }
}
