//! The secrets that a pipeline names: given with the demo, set on its board before the build is submitted.

use super::DemoOptions;
use crate::client::{Client, Failed};
use crate::tokens::quoted;
use anyhow::bail;
use protocol::pipeline::PipelineSpec;
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use reqwest::Method;
use std::collections::{BTreeMap, BTreeSet};

/// All that a pipeline names: for its steps, its clone, its images.
fn named(spec: &PipelineSpec) -> BTreeSet<&str> {
    let all = spec.secrets.iter().chain(&spec.clone_secret).chain(spec.registry_secrets.values());
    all.map(String::as_str).collect()
}

/// Makes sure that those are given which the pipeline names, and no others.
///
/// # Errors
///
/// Which are missing, and what to type.
pub(super) fn check(spec: &PipelineSpec, options: &DemoOptions) -> anyhow::Result<()> {
    let (named, given) = (named(spec), &options.secrets);
    if let Some(unknown) = given.keys().find(|name| !named.contains(name.as_str())) {
        bail!("the pipeline names no secret {unknown}: leave it out, or add it to `secrets:` of callboard.yaml");
    }
    let missing: Vec<&str> = named.iter().copied().filter(|name| !given.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let path = options.path.as_ref().map(|path| format!(" {}", quoted(&path.display().to_string())));
    let options: String = named.iter().map(|name| format!(" --secret {name}")).collect();
    bail!(
        "the pipeline names secrets that were not given: {}\nPut their values into environment variables of these names, then \
         type\n  callboard demo{}{options}\n(or --secret-file NAME=FILE for one whose value is in a file)",
        missing.join(", "),
        path.unwrap_or_default()
    )
}

/// Sets them.
pub(super) async fn set(board: &Client, secrets: &BTreeMap<String, Secret>) -> Result<(), Failed> {
    for (name, value) in secrets {
        let value = SecretValue { value: value.clone() };
        board.give::<SecretName>(Method::PUT, &format!("secrets/{name}"), &value).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;
    use crate::screen::Screen;

    fn check(given: &[&str]) -> Result<(), String> {
        let spec = serde_json::json!({ "repository": "https://git.example/a.git", "steps": [], "secrets": ["TOKEN", "KEY"],
            "clone_secret": "CLONE", "registry_secrets": { "ghcr.io": "TOKEN" } });
        let options = DemoOptions {
            path: Some("/src/my app".into()),
            kill_worker: false,
            secrets: given.iter().map(|name| ((*name).to_owned(), Secret("hunter2".into()))).collect(),
            screen: Screen { paint: Paint(false), columns: None, is_live: false },
        };
        super::check(&serde_json::from_value(spec).unwrap(), &options).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_pipeline_names_must_be_given_and_nothing_else() {
        assert_eq!(check(&["CLONE", "KEY", "TOKEN"]), Ok(()));
        let refused = check(&["TOKEN"]).unwrap_err();
        assert!(refused.contains("not given: CLONE, KEY\n"), "{refused}");
        let typed = "\n  callboard demo '/src/my app' --secret CLONE --secret KEY --secret TOKEN\n";
        assert!(refused.contains(typed) && !refused.contains("hunter2"), "{refused}");
        let refused = check(&["CLONE", "KEY", "TOKEN", "OTHER"]).unwrap_err();
        assert!(refused.contains("no secret OTHER"), "{refused}");
    }
}
