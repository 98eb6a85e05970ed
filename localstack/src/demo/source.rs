//! What the demo builds: the sample, or a repository of the caller's; and its pipeline, from its file or proposed.

use crate::{propose, say};
use anyhow::{Context as _, bail};
use protocol::pipeline::PipelineSpec;
use protocol::pipeline_file::{self, Given};
use std::fs;
use std::path::{Path, PathBuf};
use tokio::process::Command;

const SAMPLE: [(&str, &str); 3] = [
    ("callboard.yaml", include_str!("../../sample/callboard.yaml")),
    ("roman.c", include_str!("../../sample/roman.c")),
    ("test.sh", include_str!("../../sample/test.sh")),
];

/// A pipeline whose step takes long enough to lose its worker.
const LONG: &str = "name: long\nsteps:\n  - name: work\n    run: |\n      for second in $(seq 600); do echo \"still working, second $second\"; sleep 1; done\n";

/// A repository and its pipeline.
pub(super) struct Source {
    /// The pipeline's name.
    pub(super) slug: String,
    /// What it runs.
    pub(super) spec: PipelineSpec,
    /// The repository, for people.
    pub(super) name: String,
}

impl Source {
    /// Reads the repository's `callboard.yaml`; without one, proposes a pipeline and shows it.
    pub(super) fn read(repository: &Path, url: &str, of_caller: bool) -> anyhow::Result<Self> {
        let name = if of_caller { repository.display().to_string() } else { "a sample".into() };
        let file = repository.join("callboard.yaml");
        if let Ok(text) = fs::read_to_string(&file) {
            let given = Given { name: Some("demo"), repository: Some(url) };
            let read = pipeline_file::parse(&text, given);
            let mut read = read.map_err(anyhow::Error::from)?;
            // What is served is HEAD, as `main`.
            read.spec.default_ref = "main".into();
            return Ok(Self { slug: read.slug, spec: read.spec, name });
        }
        let Some((from, spec)) = propose::propose(repository, url) else {
            let known = propose::known_files();
            bail!("{} has no callboard.yaml, and none of {known} to propose one from", repository.display());
        };
        let text = pipeline_file::write("demo", &spec);
        say::out(format_args!("No callboard.yaml: proposed from {from}; keep it if it suits you.\n\n{text}"))?;
        Ok(Self { slug: "demo".into(), spec, name })
    }
}

/// Makes the sample's repository in `dir`.
pub(super) async fn sample(dir: &Path, long: bool) -> anyhow::Result<PathBuf> {
    fs::create_dir(dir)?;
    if long {
        fs::write(dir.join("callboard.yaml"), LONG)?;
    } else {
        for (name, text) in SAMPLE {
            fs::write(dir.join(name), text)?;
        }
    }
    let identity = ["-c", "user.name=callboard", "-c", "user.email=callboard@localhost", "-c", "commit.gpgsign=false"];
    for args in
        [&["init", "--quiet", "--initial-branch=main"][..], &["add", "."], &["commit", "--quiet", "-m", "A sample"]]
    {
        let mut git = Command::new("git");
        git.arg("-C").arg(dir).args(identity).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let status = git.status().await.context("git can't be run: install it")?;
        if !status.success() {
            bail!("git {} ended with {status}", args[0]);
        }
    }
    Ok(dir.to_owned())
}
