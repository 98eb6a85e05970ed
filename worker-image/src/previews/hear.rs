//! Hears a keeper, and asks one that says nothing whether it is there: one that is stopped holds its port and its users' connections,
//! and answers nobody.

use super::call::Call;
use super::folder::Folder;
use super::keeper::Ask;
use protocol::preview::PreviewReport;
use std::time::Duration;
use tokio::time::sleep;

/// So many times in a row a keeper may leave unanswered that it is asked.
const MISSES_MAX: u32 = 3;

/// What is heard of a keeper.
#[derive(Debug)]
pub(super) enum Heard {
    /// How its preview is.
    Says(PreviewReport),
    /// It has ended. Nothing is heard after this.
    Over,
    /// It is there and does not answer. Nothing is heard after this.
    Silent,
}

/// Hears the keeper of `folder` until it is over or silent, and asks it `every` so often.
pub(super) fn listen(mut call: Call, folder: Folder, every: Duration, tell: impl Fn(Heard) + Send + Sync + 'static) {
    tokio::spawn(async move {
        let says = async {
            while let Some(told) = call.next().await {
                tell(Heard::Says(told.report));
            }
        };
        let last = tokio::select! {
            biased;
            () = says => Heard::Over,
            () = until_silent(&folder, every) => Heard::Silent,
        };
        tell(last);
    });
}

async fn until_silent(folder: &Folder, every: Duration) {
    let mut misses = 0;
    while misses < MISSES_MAX {
        sleep(every).await;
        misses = if Call::to(folder, Ask::Watch).await.is_some() { 0 } else { misses + 1 };
    }
}
