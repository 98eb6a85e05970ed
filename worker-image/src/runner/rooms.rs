//! The back end that a runner has: containers that are there already, one for each task.

use super::room::{Room, left_ms};
use super::settings::Place;
use crate::clock::millis;
use crate::isolation::bubblewrap::{names::CERTIFICATES, path_variable};
use crate::isolation::guarantees::Trying;
use crate::isolation::{Isolation, Running, StartError, Task};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use shim::said::{File, Orders};
use std::fs;
use std::sync::{Mutex, PoisonError};

/// All rooms of a task, by number; what is taken is used.
#[derive(Debug)]
pub(super) struct Rooms {
    place: Place,
    rooms: Mutex<Vec<Option<Room>>>,
}

impl Rooms {
    pub(super) fn new(place: Place, rooms: Vec<Room>) -> Self {
        Self { place, rooms: Mutex::new(rooms.into_iter().map(Some).collect()) }
    }

    /// Lets those go that nothing has run in.
    pub(super) async fn dismiss(&self) {
        let unused = std::mem::take(&mut *self.rooms.lock().unwrap_or_else(PoisonError::into_inner));
        for room in unused.into_iter().flatten() {
            room.dismiss().await;
        }
    }

    fn take(&self, number: usize) -> Option<Room> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number)?.take()
    }

    fn orders(&self, task: Task) -> Orders {
        let files = task.files.into_iter().map(|file| File { name: file.name, mode: file.mode, content: file.content });
        let certificates = fs::read_to_string(task.directory.join(CERTIFICATES)).ok().filter(|_| task.number == 0);
        let certificates = certificates.map(|content| File { name: CERTIFICATES.into(), mode: 0o600, content });
        Orders {
            argv: task.argv,
            env: task.env,
            usual_path: path_variable(),
            files: files.chain(certificates).collect(),
            inside: self.place.inside.clone().into(),
            directory: self.place.workspace.clone(),
            processes_max: task.limits.processes,
            linger_ms: millis(task.kill_grace),
            left_ms: left_ms(task.fence_at, task.kill_grace),
        }
    }
}

impl Isolation for Rooms {
    fn name(&self) -> &'static str {
        "ecs"
    }

    /// Its containers were made of the steps' images before there was a runner.
    fn takes(&self, _image: &str) -> Result<(), StartError> {
        Ok(())
    }

    fn guarantees(&self) -> Trying<'_> {
        async { Vec::new() }.boxed()
    }

    fn has_sandboxes(&self) -> bool {
        false
    }

    fn inside(&self) -> &str {
        &self.place.inside
    }

    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        async move {
            if task.way_out.is_none() {
                return Err(StartError::Image(NO_NETWORK.into()));
            }
            let room = self.take(task.number);
            let room = room.ok_or_else(|| StartError::Trouble("this task has no container for it".into()))?;
            let (fence_at, grace) = (task.fence_at, task.kill_grace);
            room.start(self.orders(task), fence_at, grace).await
        }
        .boxed()
    }
}

/// What is to be said of a step that asks for a network of its own.
pub(super) const NO_NETWORK: &str = "network: none can't be had in an ECS task, whose containers share a network";
