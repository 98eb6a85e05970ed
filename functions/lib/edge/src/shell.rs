//! What a handler works with: the store, the settings, the key, where plans come from.

use crate::billing::Billing;
use crate::config::{BadSetting, Config};
use crate::seal::Seal;
use std::sync::Arc;
use store::Store;

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
}

impl Shell {
    /// Surroundings for `config`. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if the database's address can't be read, or there can be no such billing service.
    pub fn new(config: Config) -> Result<Self, BadSetting> {
        let store = Store::connect_lazy(&config.database_url, config.database_connections)
            .map_err(|_| BadSetting::new("CALLBOARD_DATABASE_URL", "not an address of a Postgres database"))?;
        let seal = Seal::new(&config.secrets_key);
        let billing = Billing::new(&config)?;
        Ok(Self { store, config: Arc::new(config), seal, billing })
    }
}
