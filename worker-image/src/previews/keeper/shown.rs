//! How a keeper's preview is, said on disk and to all who listen.

use crate::previews::folder::Folder;
use protocol::preview::PreviewReport;
use std::io;
use tokio::sync::watch;

/// What is said.
#[derive(Debug)]
pub(super) struct Shown {
    folder: Folder,
    now: watch::Sender<PreviewReport>,
}

impl Shown {
    pub(super) fn new(folder: Folder, first: PreviewReport) -> io::Result<Self> {
        folder.say(&first)?;
        Ok(Self { folder, now: watch::Sender::new(first) })
    }

    pub(super) fn watch(&self) -> watch::Receiver<PreviewReport> {
        self.now.subscribe()
    }

    /// Changes what is said, first on disk: where that is full, at least those who listen hear it.
    pub(super) fn change(&self, change: impl FnOnce(&mut PreviewReport)) {
        let mut report = self.now.borrow().clone();
        change(&mut report);
        if *self.now.borrow() != report {
            self.folder.say(&report).ok();
            self.now.send_replace(report);
        }
    }
}
