//! The clean-up of previews: those whose time is over, those whose host is lost, and what retention allows to forget.
//!
//! It takes what nobody holds at that moment, so that whoever extends or destroys one at the same time wins or loses as a whole;
//! what it passed over is the next clean-up's.

use crate::sweep::BATCHES_MAX;
use edge::{Rejection, Shell};
use protocol::admin::Swept;
use store::preview_cleanup::{self as cleanup, BATCH};

/// Cleans previews up. While ends are held back after an outage, no host counts as lost.
///
/// # Errors
///
/// [`Rejection::Store`] if the database could not be asked.
pub(crate) async fn tend(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    if !cleanup::note(&shell.store).await? {
        return Ok(());
    }
    if !swept.paused {
        swept.previews_lost += all(shell, Kind::LoseHosts).await?;
        all(shell, Kind::ConfirmForgotten).await?;
    }
    swept.previews_expired += all(shell, Kind::Expire).await?;
    all(shell, Kind::DestroyExpired).await?;
    swept.previews_expired += all(shell, Kind::DestroyDue).await?;
    swept.previews_purged += all(shell, Kind::Purge).await?;
    Ok(cleanup::forget_hosts(&shell.store, &shell.config.timing).await?)
}

#[derive(Clone, Copy)]
enum Kind {
    LoseHosts,
    ConfirmForgotten,
    Expire,
    DestroyExpired,
    DestroyDue,
    Purge,
}

/// Batch after batch, until one is not full. How many rows in all.
async fn all(shell: &Shell, kind: Kind) -> Result<u64, Rejection> {
    let (store, timing) = (&shell.store, &shell.config.timing);
    let mut rows = 0;
    for _ in 0..BATCHES_MAX {
        let touched = match kind {
            Kind::LoseHosts => cleanup::lose_hosts(store, timing).await?,
            Kind::ConfirmForgotten => cleanup::confirm_forgotten(store, timing).await?,
            Kind::Expire => cleanup::expire(store).await?,
            Kind::DestroyExpired => cleanup::destroy_expired(store).await?,
            Kind::DestroyDue => cleanup::destroy_due(store).await?,
            Kind::Purge => cleanup::purge(store, timing).await?,
        };
        rows += touched;
        if touched < u64::try_from(BATCH).unwrap_or(u64::MAX) {
            break;
        }
    }
    Ok(rows)
}
