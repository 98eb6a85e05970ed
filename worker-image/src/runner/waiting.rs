//! Rooms in which nothing runs yet. Somebody must hear them all the time: ECS may ask them to end before it asks the runner.

use super::room::{Frames, told_by_a_room};
use shim::said::ToRunner;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The line to a room in which nothing runs yet.
#[derive(Debug)]
pub(super) struct Waiting {
    enough: oneshot::Sender<()>,
    line: JoinHandle<Option<(Frames, OwnedWriteHalf)>>,
}

impl Waiting {
    /// Hears a room from now on. One that says anything else is not to be spoken to any more.
    pub(super) fn hear(control: UnixStream) -> Self {
        let (enough, mut heard_enough) = oneshot::channel();
        let line = tokio::spawn(async move {
            let (from, to) = control.into_split();
            let (mut frames, mut is_asked) = (Frames::of(from), false);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut heard_enough => return Some((frames, to)),
                    said = frames.next() => match said {
                        Ok(ToRunner::AskedToEnd) if !is_asked => {
                            is_asked = true;
                            told_by_a_room();
                        }
                        Ok(_) | Err(_) => return None,
                    },
                }
            }
        });
        Self { enough, line }
    }

    /// The line, to be heard by whom it is given to; none if the room is gone.
    pub(super) async fn take(self) -> Option<(Frames, OwnedWriteHalf)> {
        self.enough.send(()).ok();
        self.line.await.ok()?
    }
}
