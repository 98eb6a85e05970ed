//! Which database a stack uses: its own, or one that somebody names. `callboard.env` holds the address of a stack's own one
//! too, and a shell that has read that file passes it on to every `up`: such an address says whose it is.

use crate::keys;
use anyhow::{Context as _, bail};
use edge::config::SecretsKey;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::time::Duration;
use store::Store;

/// Marks a stack's own database; what follows is its directory. To Postgres it is the name of a client.
const MARK: &str = "callboard up in ";
/// How a board's first tokens are named; what follows tells its secrets key.
const TOKENS: &str = "one machine, secrets key ";
/// How long a server may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A database that runs elsewhere.
#[derive(Clone)]
pub struct Database {
    /// Its address, which may hold a password.
    pub url: String,
    /// Who says so, for people: `DATABASE_URL of the environment`.
    pub source: &'static str,
}

/// The address of a stack's own database, with a mark that says so.
pub(crate) fn marked(url: &str, dir: &Path) -> String {
    let Ok(mut marked) = Url::parse(url) else { return url.to_owned() };
    marked.query_pairs_mut().append_pair("application_name", &format!("{MARK}{}", dir.display()));
    // A `+` is a blank in forms alone.
    marked.as_str().replace('+', "%20")
}

/// The directory of the stack whose own database this is.
fn owner(url: &Url) -> Option<String> {
    let (_, name) = url.query_pairs().find(|(key, _)| key == "application_name")?;
    name.strip_prefix(MARK).map(str::to_owned)
}

/// What the first tokens of a board with this key are called: so a database tells whose secrets it holds.
pub(crate) fn token_name(key: &SecretsKey) -> String {
    let digest = Sha256::new().chain_update("callboard secrets key").chain_update(key.bytes).finalize();
    format!("{TOKENS}{}", hex::encode(&digest[..4]))
}

impl Database {
    /// Whether a stack in `dir` is to use it: `false` if it is that stack's own, which it starts itself.
    ///
    /// # Errors
    ///
    /// If another stack's it is, if it does not answer, or if a board with another secrets key set it up; each with who named
    /// it.
    pub(crate) async fn is_for(&self, dir: &Path) -> anyhow::Result<bool> {
        let source = self.source;
        let url = Url::parse(&self.url).ok().filter(|url| matches!(url.scheme(), "postgres" | "postgresql"));
        let url = url.with_context(|| format!("{source} is not an address such as postgres://user@host/database"))?;
        match owner(&url) {
            Some(owner) if Path::new(&owner) == dir => return Ok(false),
            Some(owner) => bail!(
                "{source} is the database of the board in {owner}, from its callboard.env; a board in {} would have another \
                 secrets key: unset DATABASE_URL to give it a database of its own",
                dir.display()
            ),
            None => {}
        }
        self.answers(&url).await?;
        self.check_key(dir).await?;
        Ok(true)
    }

    /// For people: without user and password.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let Ok(url) = Url::parse(&self.url) else { return self.source.to_owned() };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}{} ({})", url.host_str().unwrap_or("local"), url.path(), self.source)
    }

    /// A server that is not there is told at once, not when the last try has run into its timeout.
    async fn answers(&self, url: &Url) -> anyhow::Result<()> {
        let Some(host) = url.host_str().filter(|host| !host.is_empty() && !host.starts_with('%')) else {
            return Ok(());
        };
        if url.query_pairs().any(|(key, _)| key == "host") {
            return Ok(());
        }
        let address = (host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(5432));
        let failed = || format!("the database of {} does not answer at {}:{}", self.source, address.0, address.1);
        let connect = tokio::net::TcpStream::connect((address.0.as_str(), address.1));
        tokio::time::timeout(PATIENCE, connect).await.with_context(failed)?.with_context(failed)?;
        Ok(())
    }

    async fn check_key(&self, dir: &Path) -> anyhow::Result<()> {
        let failed = || format!("the database of {} can't be used", self.source);
        let store = Store::connect_lazy(&self.url, 1).with_context(failed)?;
        // One that was never set up has no tokens, nor the table for them.
        let tokens = match store.is_ready().await {
            Ok(true) => store::tokens::list(&store).await,
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        store.close().await;
        let names = tokens.with_context(failed)?.into_iter().filter(|token| token.revoked_at.is_none());
        let keys: Vec<String> =
            names.filter_map(|token| token.name.strip_prefix(TOKENS).map(crate::clean::plain)).collect();
        let file = dir.join("secrets.key");
        let ours = keys::read(&file)?.as_deref().and_then(SecretsKey::parse).map(|key| token_name(&key));
        let ours = ours.as_deref().and_then(|name| name.strip_prefix(TOKENS)).unwrap_or("none yet");
        match keys.first() {
            Some(theirs) if !keys.iter().any(|key| key == ours) => bail!(
                "the database of {} was set up by a board with the secrets key {theirs}, and {} has {ours}: its secrets could \
                 not be opened; copy that board's secrets.key to {}, or name another database",
                self.source,
                dir.display(),
                file.display()
            ),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(url: &str) -> Database {
        Database { url: url.to_owned(), source: "DATABASE_URL of the environment" }
    }

    #[test]
    fn a_stacks_own_address_says_whose_it_is_and_stays_one() {
        let url = marked("postgres://callboard:secret@127.0.0.1:5433/postgres", Path::new("/var/lib/call board"));
        assert_eq!(owner(&Url::parse(&url).unwrap()).as_deref(), Some("/var/lib/call board"));
        let harmless = |letter: char| letter.is_ascii_alphanumeric() || ":/@.?=%-_".contains(letter);
        assert!(url.chars().all(harmless), "{url} can stand in a shell's file");
    }

    #[test]
    fn what_is_shown_holds_no_password() {
        let shown = named("postgres://me:hunter2@db.example:6000/board").shown();
        assert_eq!(shown, "db.example:6000/board (DATABASE_URL of the environment)");
    }

    #[tokio::test]
    async fn another_boards_own_database_is_refused_and_ones_own_left_to_itself() {
        let database = named(&marked("postgres://callboard:secret@127.0.0.1:1/postgres", Path::new("/a")));
        assert!(!database.is_for(Path::new("/a")).await.unwrap());
        let refused = database.is_for(Path::new("/b")).await.unwrap_err().to_string();
        assert!(refused.contains("the board in /a") && refused.contains("unset DATABASE_URL"), "{refused}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_at_once_with_who_named_it() {
        let begun = std::time::Instant::now();
        let refused = named("postgres://u:hunter2@127.0.0.1:1/x").is_for(Path::new("/b")).await.unwrap_err();
        let refused = format!("{refused:#}");
        assert!(refused.contains("DATABASE_URL of the environment does not answer at 127.0.0.1:1"), "{refused}");
        assert!(begun.elapsed() < PATIENCE && !refused.contains("hunter2"), "{refused}");
        assert!(named("mysql://x").is_for(Path::new("/b")).await.unwrap_err().to_string().contains("postgres://"));
    }
}
