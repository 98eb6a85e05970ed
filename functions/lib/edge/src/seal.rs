//! Sealing secrets (AEAD, bound to workspace and name), and signing log tokens (HMAC, bound to the build).
//!
//! A log token is computed, not stored: a repeated claim returns the same one, and a chunk's call needs no look-up.

use crate::config::SecretsKey;
use crate::log_token::PREFIX;
use chacha20poly1305::aead::{Aead, AeadCore, KeyInit as _, OsRng, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The key, ready for use.
#[derive(Clone)]
pub struct Seal {
    key_id: String,
    cipher: XChaCha20Poly1305,
    signer: Hmac<Sha256>,
}

/// A sealed value as it is stored.
pub struct Sealed {
    /// The name of the key.
    pub key_id: String,
    /// 24 random bytes.
    pub nonce: Vec<u8>,
    /// The value and its tag.
    pub ciphertext: Vec<u8>,
}

impl Sealed {
    /// A sealed value whose bytes come as hex digits; what is no hex opens with no key.
    #[must_use]
    pub fn from_hex(key_id: String, nonce: &str, ciphertext: &str) -> Self {
        let bytes = |text| hex::decode(text).unwrap_or_default();
        Self { key_id, nonce: bytes(nonce), ciphertext: bytes(ciphertext) }
    }
}

/// A value that can't be opened: another key, or it was changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a secret can't be opened with the key {key_id}")]
pub struct CannotOpen {
    /// The key it was sealed with.
    pub key_id: String,
}

impl Seal {
    pub(crate) fn new(key: &SecretsKey) -> Self {
        let derived = |purpose: &str| Sha256::new().chain_update(purpose).chain_update(key.bytes).finalize();
        let signer = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&derived("callboard log token"));
        let signer = signer.expect("HMAC takes a key of any length");
        Self { key_id: key.id.clone(), cipher: XChaCha20Poly1305::new(&derived("callboard secrets")), signer }
    }

    /// Seals `value`, so that it opens only as the secret `name` of `workspace`.
    ///
    /// # Panics
    ///
    /// Never: only values longer than the cipher allows (256 GiB) fail.
    #[must_use]
    pub fn seal(&self, workspace: Uuid, name: &str, value: &str) -> Sealed {
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let aad = bound_to(workspace, name);
        let ciphertext = self.cipher.encrypt(&nonce, Payload { msg: value.as_bytes(), aad: &aad });
        let ciphertext = ciphertext.expect("a secret is shorter than the cipher's limit");
        Sealed { key_id: self.key_id.clone(), nonce: nonce.to_vec(), ciphertext }
    }

    /// Opens what [`Seal::seal`] made.
    ///
    /// # Errors
    ///
    /// [`CannotOpen`] if it was sealed with another key, for another name, or was changed since.
    pub fn open(&self, workspace: Uuid, name: &str, sealed: &Sealed) -> Result<String, CannotOpen> {
        let cannot = || CannotOpen { key_id: sealed.key_id.clone() };
        if sealed.key_id != self.key_id || sealed.nonce.len() != 24 {
            return Err(cannot());
        }
        let aad = bound_to(workspace, name);
        let nonce = XNonce::from_slice(&sealed.nonce);
        let plain = self.cipher.decrypt(nonce, Payload { msg: &sealed.ciphertext, aad: &aad }).map_err(|_| cannot())?;
        String::from_utf8(plain).map_err(|_| cannot())
    }

    /// The token that is good for the logs of `build`, and for its one runner to fetch the job and to report, as the worker token `claimed_by` claimed it.
    #[must_use]
    pub fn log_token(&self, build: Uuid, claimed_by: &str) -> String {
        format!("{PREFIX}{claimed_by}_{}", hex::encode(self.signed(build, claimed_by).finalize().into_bytes()))
    }

    /// Whether `token` is that of `build`; then the worker token's id that claimed it.
    #[must_use]
    pub fn read_log_token(&self, build: Uuid, token: &str) -> Option<String> {
        let (claimed_by, signature) = token.strip_prefix(PREFIX)?.split_once('_')?;
        let signature = hex::decode(signature).ok()?;
        self.signed(build, claimed_by).verify_slice(&signature).ok()?;
        Some(claimed_by.to_owned())
    }

    fn signed(&self, build: Uuid, claimed_by: &str) -> Hmac<Sha256> {
        self.signer.clone().chain_update(build.as_bytes()).chain_update(claimed_by.as_bytes())
    }
}

fn bound_to(workspace: Uuid, name: &str) -> Vec<u8> {
    [workspace.as_bytes().as_slice(), name.as_bytes()].concat()
}
