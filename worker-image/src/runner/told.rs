//! SIGTERM: the task is being stopped. It does not say why; if the build was cancelled, the board does, with the next batch of the log.

use crate::logs::Alive;
use crate::stop::{Stop, Why};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::info;

/// How long the board may take to say why.
const WHY_WITHIN: Duration = Duration::from_secs(3);

/// Whether this process was told to stop.
#[derive(Clone, Debug)]
pub(super) struct Told(watch::Receiver<bool>);

impl Told {
    /// Hears SIGTERM and SIGINT from now on.
    ///
    /// # Errors
    ///
    /// If they can't be heard.
    pub(super) fn listen() -> io::Result<Self> {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (told, heard) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            told.send_replace(true);
            told.closed().await;
        });
        Ok(Self(heard))
    }

    /// Waits until it is.
    pub(super) async fn stop(&self) {
        let mut heard = self.0.clone();
        if heard.wait_for(|told| *told).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Has the build stop once this process is told to, for the board's reason if it has one.
    pub(super) async fn heed(self, alive: Arc<Alive>, stop: Stop) {
        self.stop().await;
        info!("told to stop");
        tokio::select! {
            _ = timeout(WHY_WITHIN, alive.ask()) => {}
            _ = stop.asked() => {}
        }
        stop.ask(Why::Shutdown);
    }
}
