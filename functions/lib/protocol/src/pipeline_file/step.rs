//! The steps of a pipeline file.

use super::fields::{Field, Fields, Reader, quoted};
use crate::pipeline::{Network, Step};
use crate::pipeline_problems::is_image;
use rules::pipeline::{COMMAND_MAX_BYTES, COMMANDS_MAX, STEPS_MAX, is_step_name};
use std::collections::BTreeMap;

const KEYS: &[&str] = &["name", "image", "run", "env", "timeout", "network", "on_cancel"];

/// The steps, in order: at least one, no name twice.
pub(super) fn steps(fields: &Fields<'_>, reader: &mut Reader) -> Vec<Step> {
    let Some(field) = fields.get("steps") else {
        reader.missing(fields, "steps");
        return Vec::new();
    };
    let items = reader.items(&field);
    if !(1..=STEPS_MAX).contains(&items.len()) {
        reader.refuse(&field, format!("holds {} steps; write 1 to {STEPS_MAX}", items.len()));
    }
    let mut seen = BTreeMap::new();
    let steps: Vec<Step> = items.iter().map(|item| step(item, &mut seen, reader)).collect();
    if !steps.is_empty() && steps.iter().all(|step| step.on_cancel) {
        reader.refuse(&field, "holds nothing but steps that are on_cancel; write one that is not");
    }
    steps
}

fn step<'n>(item: &Field<'n>, seen: &mut BTreeMap<String, usize>, reader: &mut Reader) -> Step {
    let fields = reader.map(item, KEYS);
    Step {
        name: name(&fields, seen, reader),
        image: fields.get("image").and_then(|field| image(&field, reader)).unwrap_or_else(|| "host".into()),
        commands: commands(&fields, reader),
        env: fields.get("env").map(|field| reader.env(&field)).unwrap_or_default(),
        timeout_seconds: fields.get("timeout").and_then(|field| reader.duration(&field)),
        network: fields.get("network").map(|field| network(&field, reader)).unwrap_or_default(),
        on_cancel: fields.get("on_cancel").is_some_and(|field| reader.flag(&field)),
    }
}

fn name(fields: &Fields<'_>, seen: &mut BTreeMap<String, usize>, reader: &mut Reader) -> String {
    let Some(field) = fields.get("name") else {
        reader.missing(fields, "name");
        return String::new();
    };
    let what = "can't name a step; use 1 to 64 visible characters, with no space at either end";
    let Some(name) = reader.text_that(&field, is_step_name, what) else { return String::new() };
    if let Some(line) = seen.insert(name.clone(), field.place.line) {
        reader.refuse(&field, format!("{} is the name of another step too, in line {line}", quoted(&name)));
    }
    name
}

pub(super) fn image(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    reader.text_that(field, is_image, "is not an image; write host, or a name such as rust:1.95")
}

pub(super) fn commands(fields: &Fields<'_>, reader: &mut Reader) -> Vec<String> {
    let Some(field) = fields.get("run") else {
        reader.missing(fields, "run");
        return Vec::new();
    };
    let items = reader.items(&field);
    if !(1..=COMMANDS_MAX).contains(&items.len()) {
        reader.refuse(&field, format!("holds {} commands; write 1 to {COMMANDS_MAX}", items.len()));
    }
    items.iter().filter_map(|item| command(item, reader)).collect()
}

fn command(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    let text = reader.text(field)?;
    if text.trim().is_empty() || text.len() > COMMAND_MAX_BYTES || text.contains('\0') {
        reader.refuse(field, "is not a command: it is empty, holds a NUL, or is longer than 64 KiB");
        return None;
    }
    Some(text)
}

fn network(field: &Field<'_>, reader: &mut Reader) -> Network {
    let is_network = |text: &str| matches!(text, "isolated" | "none");
    let what = "is not a network; write isolated (public addresses) or none";
    match reader.text_that(field, is_network, what).as_deref() {
        Some("none") => Network::None,
        Some(_) | None => Network::Isolated,
    }
}
