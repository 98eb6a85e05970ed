//! Follows a build to its end: its log as it comes, and meanwhile what it is at.
//!
//! Two tasks ask the board, one for the log and one for the build, so that neither waits for the other; this one shows.

mod lines;
mod log;
mod sse;
mod status;
mod view;

pub use lines::Lines;
pub use status::{waiting, waiting_in_short};
pub use view::{Json, Raw, Silent, View};

use crate::client::{Client, Failed};
use log::News;
use protocol::build::Build;
use std::future::Future;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);
/// How many chunks may wait to be shown.
const WAITING_MAX: usize = 64;

/// Shows a build from its beginning to its end; returns it as it ended.
///
/// # Errors
///
/// What the board says, or that it has been away for too long; or that nobody reads what is shown.
pub async fn follow(board: &Client, id: Uuid, view: &mut dyn View) -> anyhow::Result<Build> {
    let build = board.build(id).await?;
    view.build(&build)?;
    let shown = show(board, build, view).await;
    view.end()?;
    shown?;
    ended(board, id).await
}

async fn show(board: &Client, build: Build, view: &mut dyn View) -> anyhow::Result<()> {
    let id = build.id;
    let (sender, mut news) = mpsc::channel(WAITING_MAX);
    let (changes, mut changed) = watch::channel(build);
    let _log = Task::start(log::read(board.clone(), id, sender));
    let _build = Task::start(look(board.clone(), id, changes));
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            news = news.recv() => match news {
                Some(Ok(News::Chunk(chunk))) => view.chunk(&chunk)?,
                Some(Ok(News::Away(why))) => view.note(&format!("{why}; the build goes on, trying again"))?,
                Some(Ok(News::Capped)) => view.note("the log has reached its cap; what came after was discarded")?,
                None => return Ok(()),
                Some(Err(failed)) => return Err(failed.into()),
            },
            Ok(()) = changed.changed() => view.build(&changed.borrow_and_update())?,
            _ = ticks.tick() => view.tick()?,
        }
    }
}

/// Reads the build now and then. A look that fails does not matter: if the board is away, the log says so.
async fn look(board: Client, id: Uuid, changes: watch::Sender<Build>) {
    while !changes.borrow().status.is_final() {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(build) = board.build(id).await
            && changes.send(build).is_err()
        {
            return;
        }
    }
    // Whoever looks at the changes must not take their end for one.
    changes.closed().await;
}

/// The build as it ended.
async fn ended(board: &Client, id: Uuid) -> anyhow::Result<Build> {
    let mut away = Duration::ZERO;
    loop {
        match board.build(id).await {
            Ok(build) if build.status.is_final() => return Ok(build),
            Ok(_) => {}
            Err(failed) if log::may_pass(&failed) && away < log::PATIENCE => away += LOOK_EVERY,
            Err(failed) => return Err(failed.into()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Shows what is stored of a log now.
///
/// # Errors
///
/// What the board says; or that nobody reads what is shown.
pub async fn stored(board: &Client, id: Uuid, view: &mut dyn View) -> anyhow::Result<()> {
    let mut seen = 0;
    loop {
        let page = board.log(id, seen).await?;
        page.chunks.iter().try_for_each(|chunk| view.chunk(chunk))?;
        if page.chunks.is_empty() || page.complete {
            if page.capped {
                view.note("the log has reached its cap; what came after was discarded")?;
            }
            return Ok(view.end()?);
        }
        seen = page.last_seq;
    }
}

/// A task that ends with whoever started it.
struct Task(JoinHandle<()>);

impl Task {
    fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is told of a log, in order.
type Told = Result<News, Failed>;
