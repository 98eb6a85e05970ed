//! Makes an image ready: looks whether the daemon has it, asks its registry if not, tells how that goes.

use super::daemon::{Daemon, trouble, words};
use super::reference::{credentials, parts, registry};
use super::settings::PullWhen;
use crate::isolation::StartError;
use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt as _;
use protocol::worker::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// An image that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Its number, which is what is run whatever its name comes to mean.
    pub id: String,
    /// Its environment, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// The directories that it wants to be volumes.
    pub volumes: Vec<String>,
}

/// Makes `image` ready; the future may be dropped, with which the daemon stops asking for it.
///
/// # Errors
///
/// [`StartError::Image`] with the registry's words, or the daemon's trouble.
pub(super) async fn fetch(
    daemon: &Daemon,
    when: PullWhen,
    image: &str,
    secrets: &BTreeMap<String, Secret>,
    say: &(dyn Fn(&str) + Send + Sync),
) -> Result<Image, StartError> {
    let held = match daemon.quick.inspect_image(image).await {
        Ok(held) => Some(held),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => None,
        Err(error) => return Err(trouble(&error)),
    };
    let found = match (held, when) {
        (Some(held), PullWhen::Missing | PullWhen::Never) => return Ok(ready(held)),
        (None, PullWhen::Never) => {
            let why = "this worker has not got it, and asks no registry (--pull never)";
            return Err(StartError::Image(format!("image {image}: {why}")));
        }
        (Some(_), PullWhen::Always) | (None, PullWhen::Always | PullWhen::Missing) => {
            pull(daemon, image, secrets, say).await?;
            daemon.quick.inspect_image(image).await.map_err(|error| trouble(&error))?
        }
    };
    say(&format!("Pulled {}", pinned(image, &found)));
    Ok(ready(found))
}

async fn pull(
    daemon: &Daemon,
    image: &str,
    secrets: &BTreeMap<String, Secret>,
    say: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), StartError> {
    say(&format!("Pulling {image}"));
    let (name, tag) = parts(image);
    let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
    let mut pulling = daemon.patient.create_image(Some(options), None, credentials(image, secrets));
    let (mut progress, mut told_at) = (Progress::default(), Instant::now());
    while let Some(step) = pulling.next().await {
        let step = step.map_err(|error| StartError::Image(refusal(image, &words(&error), secrets)))?;
        progress.take_in(step);
        if told_at.elapsed() >= TELL_EVERY {
            say(&progress.line(image));
            told_at = Instant::now();
        }
    }
    Ok(())
}

/// What is to be said of an image that can't be pulled: what the daemon `said`, and how to mend what is the pipeline's to mend.
fn refusal(image: &str, said: &str, secrets: &BTreeMap<String, Secret>) -> String {
    let (registry, lower) = (registry(image), said.to_lowercase());
    let is_login = LOGIN.iter().any(|word| lower.contains(word));
    let name = format!("`registry_secrets: {{{registry:?}: NAME}}`");
    let mend = match (is_login, secrets.contains_key(registry)) {
        (false, _) => return format!("image {image} can't be pulled: {said}"),
        (true, true) => format!(
            "{registry} did not take the secret that the pipeline names, {name}: it is USER:PASSWORD, or a token"
        ),
        (true, false) => {
            format!("{registry} asks for a login, or has no such image; name its secret in the pipeline: {name}")
        }
    };
    format!("image {image} can't be pulled: {mend} ({said})")
}

/// What registries say to those whom they do not let in, and daemons of those who have no login.
const LOGIN: [&str; 4] = ["unauthorized", "denied", "authentication required", "no basic auth credentials"];

/// What is known of the layers of an image.
#[derive(Debug, Default)]
struct Progress {
    layers: BTreeSet<String>,
    there: BTreeSet<String>,
}

impl Progress {
    fn take_in(&mut self, step: CreateImageInfo) {
        let (Some(layer), Some(status)) = (step.id, step.status) else { return };
        // The name of the tag is told as if it were a layer.
        if status.starts_with("Pulling from") {
            return;
        }
        if matches!(status.as_str(), "Pull complete" | "Already exists") {
            self.there.insert(layer.clone());
        }
        self.layers.insert(layer);
    }

    fn line(&self, image: &str) -> String {
        format!("Pulling {image}: {} of {} layers are there", self.there.len(), self.layers.len())
    }
}

fn ready(found: ImageInspect) -> Image {
    let config = found.config.unwrap_or_default();
    let (env, volumes) = (config.env.unwrap_or_default(), config.volumes.unwrap_or_default());
    Image { id: found.id.unwrap_or_default(), env, volumes }
}

/// The image with the digest that its registry knows it by.
fn pinned(image: &str, found: &ImageInspect) -> String {
    let digests = found.repo_digests.iter().flatten();
    let digest = digests.filter_map(|name| name.split_once('@')).map(|(_, digest)| digest).next();
    match digest {
        Some(digest) if !image.contains('@') => format!("{image}@{digest}"),
        Some(_) | None => image.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_layers() {
        let mut progress = Progress::default();
        for (layer, status) in [
            ("1.95", "Pulling from library/rust"),
            ("aa", "Pulling fs layer"),
            ("bb", "Already exists"),
            ("aa", "Downloading"),
            ("cc", "Waiting"),
            ("aa", "Pull complete"),
        ] {
            let (id, status) = (Some(layer.into()), Some(status.into()));
            progress.take_in(CreateImageInfo { id, status, ..CreateImageInfo::default() });
        }
        assert_eq!(progress.line("rust"), "Pulling rust: 2 of 3 layers are there");
    }

    #[test]
    fn whoever_is_not_let_in_is_told_what_to_mend() {
        let secrets = [("h:1".to_owned(), Secret("me:password".into()))].into();
        let taken = refusal("h:1/a", "Head: Unauthorized: no", &secrets);
        assert!(taken.contains("h:1 did not take") && taken.contains("`registry_secrets: {\"h:1\": NAME}`"), "{taken}");
        assert!(!taken.contains("password"), "{taken}");
        let none = refusal("ghcr.io/a", "pull access denied", &secrets);
        assert!(none.contains("ghcr.io asks for a login") && none.contains("pull access denied"), "{none}");
        assert_eq!(refusal("h:1/a", "no route", &secrets), "image h:1/a can't be pulled: no route");
    }

    #[test]
    fn what_was_pulled_is_named_by_its_digest() {
        let found =
            ImageInspect { repo_digests: Some(vec!["ghcr.io/a/b@sha256:aa".into()]), ..ImageInspect::default() };
        assert_eq!(pinned("ghcr.io/a/b:1", &found), "ghcr.io/a/b:1@sha256:aa");
        assert_eq!(pinned("ghcr.io/a/b@sha256:aa", &found), "ghcr.io/a/b@sha256:aa");
        assert_eq!(pinned("local", &ImageInspect::default()), "local");
    }
}
