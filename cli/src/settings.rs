//! Where the board is, and the token for it: from the environment, else from an env file. Never from arguments: those can
//! be read by every process of the machine.
//!
//! A directory that somebody else filled may hold a `callboard.env`. What it says is believed as a whole or not at all: a
//! token of the environment never goes to an address that such a file names.

use anyhow::{Context as _, bail};
use localstack::clean::plain;
use localstack::client::Client;
use localstack::tokens;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const URL: &str = "CALLBOARD_URL";

/// How to find the board.
#[derive(Debug)]
pub struct Settings {
    named: Option<PathBuf>,
    here: PathBuf,
    default: PathBuf,
    environment: fn(&str) -> Option<String>,
}

/// An address, and who says so.
struct Address {
    url: String,
    file: Option<PathBuf>,
}

impl Settings {
    /// Settings from the environment and, after that, a file: the one named, here or in CALLBOARD_ENV_FILE, or the first of
    /// those looked for.
    #[must_use]
    pub fn new(env_file: Option<PathBuf>) -> Self {
        let default = localstack::default_dir().join(tokens::FILE);
        let named = env_file
            .or_else(|| std::env::var_os("CALLBOARD_ENV_FILE").filter(|file| !file.is_empty()).map(PathBuf::from));
        Self { named, here: tokens::FILE.into(), default, environment: variable }
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
        let address = self.address()?;
        if !is_address(&address.url) {
            bail!("{URL} is {:?}: not an address; write http://host:port or https://host", plain(&address.url));
        }
        let token = self.token(token, &address)?;
        Client::new(address.url, token)
    }

    fn address(&self) -> anyhow::Result<Address> {
        if let Some(path) = self.named.as_ref().filter(|path| !path.exists()) {
            bail!(
                "the env file {} is not there; `callboard up` writes one into its directory: name it with --env-file or \
                 CALLBOARD_ENV_FILE",
                path.display()
            );
        }
        if let Some(url) = self.variable(URL) {
            return Ok(Address { url, file: None });
        }
        for path in self.files() {
            if let Some(url) = read(path)?.remove(URL) {
                return Ok(Address { url, file: Some(path.to_owned()) });
            }
        }
        bail!("{}", self.missing(URL))
    }

    fn token(&self, name: &'static str, address: &Address) -> anyhow::Result<String> {
        if let Some(path) = address.file.as_ref().filter(|path| **path == self.here) {
            return match read(path)?.remove(name) {
                Some(token) => Ok(token),
                None if self.variable(name).is_some() => bail!(
                    "{} names an address, but has no {name}; that of the environment is not sent to an address that a file \
                     of this directory names: set {URL} too, or trust the file with --env-file {}",
                    path.display(),
                    path.display()
                ),
                None => bail!("{} has no {name}", path.display()),
            };
        }
        if let Some(token) = self.variable(name) {
            return Ok(token);
        }
        let files = address.file.as_deref().map_or_else(|| self.files(), |path| vec![path]);
        for path in files {
            if let Some(token) = read(path)?.remove(name) {
                return Ok(token);
            }
        }
        bail!("{}", self.missing(name))
    }

    fn files(&self) -> Vec<&Path> {
        match &self.named {
            Some(path) => vec![path],
            None => vec![&self.here, &self.default],
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    fn missing(&self, name: &str) -> String {
        let files: Vec<_> = self.files().iter().map(|path| path.display().to_string()).collect();
        format!(
            "{name} is not set: not in the environment, and not in {}; start a board with `callboard up`, or name the file \
             of another with --env-file",
            files.join(" or ")
        )
    }
}

/// Whether a board can be there.
fn is_address(url: &str) -> bool {
    let parsed = reqwest::Url::parse(url);
    parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
}

fn read(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut values = tokens::read(path).context("the env file")?;
    values.retain(|_, value| !value.is_empty());
    Ok(values)
}

/// A variable of the environment. Settings are read in this one place.
#[expect(clippy::disallowed_methods)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "CALLBOARD_URL=http://file\nCALLBOARD_API_TOKEN=file-token\n";

    /// What is found, or the error, with files of this contents here, in the default place, and named.
    fn found(environment: fn(&str) -> Option<String>, here: &str, default: &str, named: Option<&str>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            if !text.is_empty() {
                std::fs::write(&path, text).unwrap();
            }
            path
        };
        let named = named.map(|text| write("named", text));
        let settings = Settings { named, here: write("here", here), default: write("default", default), environment };
        let found = settings.address().and_then(|address| {
            let token = settings.token("CALLBOARD_API_TOKEN", &address)?;
            Ok(format!("{} {token}", address.url))
        });
        found.unwrap_or_else(|error| error.to_string().replace(&dir.path().display().to_string(), ""))
    }

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn both(name: &str) -> Option<String> {
        Some(if name == URL { "http://env" } else { "env-token" }.to_owned())
    }

    fn url_alone(name: &str) -> Option<String> {
        (name == URL).then(|| "http://env".to_owned())
    }

    fn token_alone(name: &str) -> Option<String> {
        (name != URL).then(|| "env-token".to_owned())
    }

    #[test]
    fn the_environment_comes_first_then_the_named_file_or_the_one_here_or_the_default() {
        let other = FILE.replace("file", "other");
        assert_eq!(found(both, FILE, FILE, Some(FILE)), "http://env env-token");
        assert_eq!(found(nothing, &other, &other, Some(FILE)), "http://file file-token");
        assert_eq!(found(nothing, FILE, &other, None), "http://file file-token");
        assert_eq!(found(nothing, "", FILE, None), "http://file file-token");
        assert_eq!(found(url_alone, "", FILE, None), "http://env file-token");
        assert_eq!(found(token_alone, "", FILE, None), "http://file env-token");
        assert_eq!(found(token_alone, "", "", Some(FILE)), "http://file env-token");
    }

    #[test]
    fn a_token_of_the_environment_never_goes_where_a_file_of_the_directory_says() {
        assert_eq!(found(token_alone, FILE, "", None), "http://file file-token");
        let refused = found(token_alone, "CALLBOARD_URL=http://evil\n", FILE, None);
        assert!(refused.starts_with("/here names an address, but has no CALLBOARD_API_TOKEN"), "{refused}");
        assert_eq!(found(nothing, "CALLBOARD_URL=http://evil\n", FILE, None), "/here has no CALLBOARD_API_TOKEN");
    }

    #[test]
    fn an_address_is_one_of_http() {
        for fine in ["http://127.0.0.1:7070", "https://board.example.com/", "http://[::1]:1"] {
            assert!(is_address(fine), "{fine}");
        }
        for bad in ["", "board", "127.0.0.1:7070", "localhost:7070", "ftp://x", "http://"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_where_it_was_looked_for() {
        let missing = found(nothing, "", "", None);
        assert!(
            missing.starts_with("CALLBOARD_URL is not set: not in the environment, and not in /here or /default;"),
            "{missing}"
        );
        let missing = found(nothing, "", "", Some("CALLBOARD_URL=http://file\n"));
        assert!(
            missing.starts_with("CALLBOARD_API_TOKEN is not set: not in the environment, and not in /named;"),
            "{missing}"
        );
    }
}
