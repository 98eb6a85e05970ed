//! Whether a pipeline can be: every rule of `rules::pipeline` and `rules::runnable`, with the path of each field that
//! breaks one. Values are not repeated, since a variable's may be secret.

use crate::pipeline::{Env, PipelineSpec, PreviewSpec, Step};
use rules::pipeline::{
    COMMAND_MAX_BYTES, COMMANDS_MAX, ENV_MAX, STEPS_MAX, is_env_name, is_env_value, is_slug, is_step_name,
};
use rules::runnable::{self, BadRepository};
use std::collections::BTreeSet;

/// The longest that a build or a step may ask to take, in seconds: a day.
pub const TIMEOUT_MAX_SECONDS: u32 = 86_400;
/// The most labels, and the most registries.
pub const LABELS_MAX: usize = 64;

/// A field that can't be: its path, such as `steps[1].env.FOO`, and what it should be.
pub type Problems = Vec<(String, String)>;

/// Whether `label` may be asked of a worker: a word of 1 to 128 visible ASCII characters, such as `arch=arm64`.
#[must_use]
pub fn is_label(label: &str) -> bool {
    (1..=128).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `image` may name an image: `host`, or 1 to 512 visible ASCII characters that no program takes for an option.
#[must_use]
pub fn is_image(image: &str) -> bool {
    (1..=512).contains(&image.len()) && !image.starts_with('-') && image.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `registry` may name a registry: a host with or without a port, 1 to 255 characters.
#[must_use]
pub fn is_registry(registry: &str) -> bool {
    (1..=255).contains(&registry.len())
        && !registry.starts_with(['-', '.'])
        && registry.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'[' | b']'))
}

/// Whether `path` may be asked of a preview's service: `/` and visible ASCII characters, at most 1,024 in all, no fragment.
#[must_use]
pub fn is_health_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= 1024 && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// What is wrong with the name of a pipeline, if anything.
#[must_use]
pub fn slug_problem(slug: &str) -> Option<&'static str> {
    (!is_slug(slug)).then_some("use 1 to 63 of a-z, 0-9 and -, with no - at either end")
}

impl PipelineSpec {
    /// All that can't be, in the order of the fields; empty if the pipeline is fine.
    #[must_use]
    pub fn problems(&self) -> Problems {
        let mut found = Problems::new();
        repository(&self.repository, &mut found);
        if !runnable::is_ref(&self.default_ref) {
            found.add("default_ref", "not a branch, tag or commit that git accepts");
        }
        steps(&self.steps, &mut found);
        env("env", &self.env, &mut found);
        timeout("timeout_seconds", self.timeout_seconds, &mut found);
        labels(&self.requires, &mut found);
        self.secret_problems(&mut found);
        if let Some(spec) = &self.preview {
            preview(spec, &mut found);
        }
        found
    }

    fn secret_problems(&self, found: &mut Problems) {
        if self.secrets.len() > ENV_MAX {
            found.add("secrets", &format!("at most {ENV_MAX} secrets"));
        }
        for (at, name) in self.secrets.iter().enumerate() {
            secret(&format!("secrets[{at}]"), name, found);
        }
        repeats("secrets", &self.secrets, found);
        if let Some(name) = &self.clone_secret {
            secret("clone_secret", name, found);
        }
        if self.registry_secrets.len() > LABELS_MAX {
            found.add("registry_secrets", &format!("at most {LABELS_MAX} registries"));
        }
        for (registry, name) in &self.registry_secrets {
            let path = format!("registry_secrets.{}", shown(registry));
            if !is_registry(registry) {
                found.add(&path, "not a registry; write its host, such as ghcr.io");
            }
            secret(&path, name, found);
        }
    }
}

trait Add {
    fn add(&mut self, path: &str, detail: &str);
}

impl Add for Problems {
    fn add(&mut self, path: &str, detail: &str) {
        self.push((path.to_owned(), detail.to_owned()));
    }
}

fn repository(address: &str, found: &mut Problems) {
    let detail = match runnable::repository(address) {
        Ok(()) => return,
        Err(BadRepository::NotHttps) => "not an https:// address; nothing else is cloned",
        Err(BadRepository::Credentials) => {
            "holds a user name or a password; keep those in a secret, and name it in clone_secret"
        }
        Err(BadRepository::Malformed) => "not an address to clone from; write https://host/path",
    };
    found.add("repository", detail);
}

fn steps(steps: &[Step], found: &mut Problems) {
    if !(1..=STEPS_MAX).contains(&steps.len()) {
        found.add("steps", &format!("1 to {STEPS_MAX} steps"));
    }
    if !steps.is_empty() && steps.iter().all(|step| step.on_cancel) {
        found.add("steps", "at least one step that is not on_cancel");
    }
    let mut names = BTreeSet::new();
    for (at, step) in steps.iter().enumerate() {
        let path = format!("steps[{at}]");
        if !names.insert(&step.name) {
            found.add(&format!("{path}.name"), "the name of another step too");
        }
        self::step(&path, step, found);
    }
}

fn step(path: &str, step: &Step, found: &mut Problems) {
    if !is_step_name(&step.name) {
        found.add(&format!("{path}.name"), "use 1 to 64 visible characters, with no space at either end");
    }
    if !is_image(&step.image) {
        found.add(&format!("{path}.image"), "not an image; write host, or a name such as rust:1.95");
    }
    commands(&format!("{path}.commands"), &step.commands, found);
    env(&format!("{path}.env"), &step.env, found);
    timeout(&format!("{path}.timeout_seconds"), step.timeout_seconds, found);
}

fn preview(preview: &PreviewSpec, found: &mut Problems) {
    if !is_image(&preview.image) {
        found.add("preview.image", "not an image; write host, or a name such as rust:1.95");
    }
    commands("preview.commands", &preview.commands, found);
    if preview.port == 0 {
        found.add("preview.port", "1 to 65535");
    }
    if !is_health_path(&preview.health_path) {
        found.add("preview.health_path", "a path that begins with /, of at most 1,024 visible ASCII characters");
    }
    timeout("preview.ttl_seconds", Some(preview.ttl_seconds), found);
    env("preview.env", &preview.env, found);
}

fn commands(path: &str, commands: &[String], found: &mut Problems) {
    if !(1..=COMMANDS_MAX).contains(&commands.len()) {
        found.add(path, &format!("1 to {COMMANDS_MAX} commands"));
    }
    for (at, command) in commands.iter().enumerate() {
        if command.trim().is_empty() || command.len() > COMMAND_MAX_BYTES || command.contains('\0') {
            found.add(&format!("{path}[{at}]"), "not a command: it is empty, holds a NUL, or is longer than 64 KiB");
        }
    }
}

fn env(path: &str, env: &Env, found: &mut Problems) {
    if env.len() > ENV_MAX {
        found.add(path, &format!("at most {ENV_MAX} variables"));
    }
    for (name, value) in env {
        let path = format!("{path}.{}", shown(name));
        if !is_env_name(name) {
            found.add(&path, "a variable's name is a letter or _, then letters, digits and _; CALLBOARD_ is ours");
        }
        if !is_env_value(value) {
            found.add(&path, "a variable's value holds no NUL and at most 32 KiB");
        }
    }
}

fn timeout(path: &str, seconds: Option<u32>, found: &mut Problems) {
    if seconds.is_some_and(|seconds| !(1..=TIMEOUT_MAX_SECONDS).contains(&seconds)) {
        found.add(path, "1 to 86,400 seconds");
    }
}

fn labels(labels: &[String], found: &mut Problems) {
    if labels.len() > LABELS_MAX {
        found.add("requires", &format!("at most {LABELS_MAX} labels"));
    }
    for (at, label) in labels.iter().enumerate() {
        if !is_label(label) {
            found.add(&format!("requires[{at}]"), "not a label; write a word such as arch=arm64");
        }
    }
    repeats("requires", labels, found);
}

fn repeats(path: &str, words: &[String], found: &mut Problems) {
    for at in repeated(words) {
        found.add(&format!("{path}[{at}]"), "stands in the list before");
    }
}

/// The places of the words that stand before them already.
pub(crate) fn repeated<T: Ord>(words: &[T]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    words.iter().enumerate().filter(|(_, word)| !seen.insert(*word)).map(|(at, _)| at).collect()
}

fn secret(path: &str, name: &str, found: &mut Problems) {
    if !is_env_name(name) {
        found.add(path, "not the name of a secret: a letter or _, then letters, digits and _");
    }
}

/// A name as it may stand in an error: short, and without control characters.
fn shown(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}
