//! Tasks of ECS that go on although their builds have ended, whoever started them: a worker that starts anew on another disk knows nothing of
//! those of its predecessor.
//!
//! Their runners hear the same from the board and end by themselves; this is for those that don't. What the board does not say has ended is
//! left alone: it may be another worker's, or the board is away.

use crate::api::{Api, Failure};
use crate::isolation::ecs::Ecs;
use protocol::Code;
use tracing::{info, warn};
use uuid::Uuid;

/// Stops tasks of builds that have ended.
pub async fn end(tasks: &Ecs, api: &Api) {
    let started = match tasks.started().await {
        Ok(started) => started,
        Err(why) => return warn!(why, "tasks of builds that have ended can't be looked for"),
    };
    for (task, build) in started {
        if !has_ended(api, build).await {
            continue;
        }
        match tasks.stop(&task, "the build has ended").await {
            Ok(()) => info!(build.id = %build, ecs.task = task, "stopped the task of a build that had ended"),
            Err(why) => {
                warn!(build.id = %build, ecs.task = task, why, "the task of a build that has ended can't be stopped")
            }
        }
    }
}

async fn has_ended(api: &Api, build: Uuid) -> bool {
    is_end(&api.reported(build).await.map(drop))
}

fn is_end(answer: &Result<(), Failure>) -> bool {
    *answer == Err(Failure::NotOurs { code: Code::BuildEnded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_board_says_has_ended_is_stopped() {
        assert!(is_end(&Err(Failure::NotOurs { code: Code::BuildEnded })));
        let again = || Failure::Again { after: None, why: String::new() };
        for answer in [
            Ok(()),
            Err(Failure::NotOurs { code: Code::NotFound }),
            Err(Failure::NotOurs { code: Code::Unauthorized }),
            Err(Failure::Refused { code: Code::Unknown, detail: String::new() }),
            Err(again()),
        ] {
            assert!(!is_end(&answer), "{answer:?}");
        }
    }
}
