//! What a handler works with: the store, the settings, the key, where plans come from.

use crate::aws::metrics::Metrics;
use crate::aws::tasks::Tasks;
use crate::billing::Billing;
use crate::config::{BadSetting, Config};
use crate::seal::{Seal, Sealed};
use protocol::worker::Secret;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;
use uuid::Uuid;

/// A function's surroundings; cheap to clone.
#[derive(Clone)]
pub struct Shell {
    /// The database.
    pub store: Store,
    /// The settings.
    pub config: Arc<Config>,
    /// What seals secrets and signs log tokens.
    pub seal: Seal,
    /// Where plans come from.
    pub billing: Billing,
    /// Where numbers for CloudWatch go: nowhere outside of Lambda.
    pub metrics: Metrics,
    /// The tasks of builds, where workers start some and this is Lambda; `None` anywhere else, whatever is set.
    pub tasks: Option<Tasks>,
}

impl Shell {
    /// Surroundings for `config`. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if the database's address can't be read, or there can be no such billing service.
    pub fn new(config: Config) -> Result<Self, BadSetting> {
        let store = Store::connect_lazy(&config.database_url, config.database_connections)
            .map_err(|_| BadSetting::new("CALLBOARD_DATABASE_URL", "not an address of a Postgres database"))?
            .sending(config.database_statements);
        if let Some(ca) = &config.database_ca {
            store.trust(ca);
        }
        let seal = Seal::new(&config.secrets_key);
        let billing = Billing::new(&config)?;
        Ok(Self { store, config: Arc::new(config), seal, billing, metrics: Metrics::default(), tasks: None })
    }

    /// What registries are shown: `named` are secrets' names by registry. One that is not among `opened` is left out.
    #[must_use]
    pub fn by_registry(named: BTreeMap<String, String>, opened: &BTreeMap<String, Secret>) -> BTreeMap<String, Secret> {
        named.into_iter().filter_map(|(registry, name)| Some((registry, opened.get(&name)?.clone()))).collect()
    }

    /// Opens a workspace's secrets for the worker that is to have them. One that can't be opened is left out, and the logs say so.
    #[must_use]
    pub fn open(&self, workspace: Uuid, sealed: Vec<store::claims::Sealed>) -> BTreeMap<String, Secret> {
        let mut opened = BTreeMap::new();
        for store::claims::Sealed { name, key_id, nonce, ciphertext } in sealed {
            match self.seal.open(workspace, &name, &Sealed::from_hex(key_id, &nonce, &ciphertext)) {
                Ok(value) => {
                    opened.insert(name, Secret(value));
                }
                Err(error) => {
                    tracing::error!(%error, secret.name = %name, workspace.id = %workspace, "secret left out")
                }
            }
        }
        opened
    }
}
