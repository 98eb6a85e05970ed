//! A pipeline for a repository that has no `callboard.yaml`, from what is found in it.

use protocol::pipeline::{DEFAULT_REF, Network, PipelineSpec, Step};

/// What a repository is told by, and what is proposed for it: the file, then steps of a name and commands.
type Proposal = (&'static str, &'static [(&'static str, &'static [&'static str])]);

const PROPOSALS: [Proposal; 4] = [
    ("Makefile", &[("build", &["make"]), ("test", &["if make -n test >/dev/null 2>&1; then make test; fi"])]),
    (
        "Cargo.toml",
        &[
            ("build", &["if [ -e Cargo.lock ]; then cargo build --locked; else cargo build; fi"]),
            ("test", &["cargo test --locked"]),
        ],
    ),
    (
        "package.json",
        &[
            ("install", &["if [ -e package-lock.json ]; then npm ci; else npm install; fi"]),
            ("test", &["npm run test --if-present"]),
        ],
    ),
    ("pyproject.toml", &[("test", &["python3 -m unittest discover -v"])]),
];

/// The files that a proposal can be made from.
pub const KNOWN: [&str; PROPOSALS.len()] = [PROPOSALS[0].0, PROPOSALS[1].0, PROPOSALS[2].0, PROPOSALS[3].0];

/// Proposes a pipeline for a repository that holds what `has` says: the file that it is made from, and what it runs. `None`
/// if nothing is known in it.
#[must_use]
pub fn propose(has: impl Fn(&str) -> bool, url: &str) -> Option<(&'static str, PipelineSpec)> {
    let (file, steps) = PROPOSALS.iter().find(|(file, _)| has(file))?;
    let step = |(name, commands): &(&str, &[&str])| Step {
        name: (*name).to_owned(),
        image: "host".into(),
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
        env: std::collections::BTreeMap::new(),
        timeout_seconds: None,
        network: Network::Isolated,
        on_cancel: false,
    };
    let spec = PipelineSpec {
        repository: url.to_owned(),
        default_ref: DEFAULT_REF.into(),
        steps: steps.iter().map(step).collect(),
        env: std::collections::BTreeMap::new(),
        timeout_seconds: Some(900),
        requires: Vec::new(),
        secrets: Vec::new(),
        clone_secret: None,
        registry_secrets: std::collections::BTreeMap::new(),
        submodules: false,
        preview: None,
    };
    Some((file, spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn each_known_file_gets_a_pipeline_that_may_run() {
        for file in KNOWN {
            let (from, spec) = propose(|found| found == file, "https://127.0.0.1:1/repository.git").unwrap();
            assert_eq!(from, file);
            let text = protocol::pipeline_file::write("proposed", &spec);
            let read = protocol::pipeline_file::parse(&text, protocol::pipeline_file::Given::default()).unwrap();
            assert_eq!(read.spec, spec);
        }
    }

    /// What the steps proposed for `file` call, in a repository with these files.
    fn calls(file: &str, files: &[&str]) -> String {
        let directory = tempfile::tempdir().unwrap();
        files.iter().for_each(|file| fs::write(directory.path().join(file), "").unwrap());
        let (_, spec) = propose(|found| found == file, "https://127.0.0.1:1/r.git").unwrap();
        let commands: Vec<String> = spec.steps.into_iter().flat_map(|step| step.commands).collect();
        let tools = "npm() { echo npm \"$@\"; }\ncargo() { echo cargo \"$@\"; }\n";
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &format!("{tools}{}", commands.join("\n"))]).current_dir(directory.path());
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn versions_are_held_to_a_lock_file_where_there_is_one() {
        assert_eq!(calls("package.json", &["package-lock.json"]), "npm ci\nnpm run test --if-present\n");
        assert_eq!(calls("package.json", &[]), "npm install\nnpm run test --if-present\n");
        assert_eq!(calls("Cargo.toml", &["Cargo.lock"]), "cargo build --locked\ncargo test --locked\n");
        assert_eq!(calls("Cargo.toml", &[]), "cargo build\ncargo test --locked\n", "the build has written one");
    }

    #[test]
    fn an_unknown_repository_gets_none() {
        assert!(propose(|_| false, "https://127.0.0.1:1/r.git").is_none());
    }
}
