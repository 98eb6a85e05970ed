//! Where the board is, and the token for it: from the environment, else from an env file. Never from arguments: those can
//! be read by every process of the machine.

use anyhow::{Context as _, bail};
use localstack::client::Client;
use localstack::tokens;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How to find the board.
#[derive(Debug)]
pub struct Settings {
    env_file: Option<PathBuf>,
}

impl Settings {
    /// Settings from the environment and, after that, a file: the one named, or the first of those looked for.
    #[must_use]
    pub fn new(env_file: Option<PathBuf>) -> Self {
        Self { env_file }
    }

    /// The board, as the workspace's token sees it.
    ///
    /// # Errors
    ///
    /// What is not set, and how to set it.
    pub fn api(&self) -> anyhow::Result<Client> {
        self.client("CALLBOARD_API_TOKEN")
    }

    /// The board, as an operator's token sees it.
    ///
    /// # Errors
    ///
    /// What is not set, and how to set it.
    pub fn operator(&self) -> anyhow::Result<Client> {
        self.client("CALLBOARD_OPERATOR_TOKEN")
    }

    fn client(&self, token: &'static str) -> anyhow::Result<Client> {
        let file = self.file()?;
        let find =
            |name: &'static str| variable(name).or_else(|| file.get(name).cloned()).filter(|text| !text.is_empty());
        let (Some(url), Some(token_value)) = (find("CALLBOARD_URL"), find(token)) else {
            let missing = if find("CALLBOARD_URL").is_none() { "CALLBOARD_URL" } else { token };
            bail!(
                "{missing} is not set, and no env file has it (looked for {}): start a board with `callboard up`, or name \
                 its file with --env-file",
                self.places().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            );
        };
        Client::new(url, token_value)
    }

    fn places(&self) -> Vec<PathBuf> {
        match &self.env_file {
            Some(path) => vec![path.clone()],
            None => vec![tokens::FILE.into(), localstack::default_dir().join(tokens::FILE)],
        }
    }

    fn file(&self) -> anyhow::Result<BTreeMap<String, String>> {
        if let Some(path) = &self.env_file
            && !path.exists()
        {
            bail!("{} is not there", path.display());
        }
        let found = self.places().into_iter().find(|path| path.exists());
        found.map_or_else(|| Ok(BTreeMap::new()), |path| tokens::read(&path).context("the env file"))
    }
}

// Settings are read in this one place.
#[expect(clippy::disallowed_methods)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
