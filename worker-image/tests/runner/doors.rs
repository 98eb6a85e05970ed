//! Who gets in, and when anything begins.

use crate::board::{job, step};
use crate::forge::Forge;
use crate::stage::{Stage, eventually};
use protocol::runner::Outcome;
use shim::said::{Hello, Line};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn come(stage: &Stage) -> UnixStream {
    eventually("the runner's socket", || UnixStream::connect(stage.path("socket")).ok())
}

/// Whether whoever says that is turned away.
fn is_refused(stage: &Stage, said: &[u8]) -> bool {
    let mut stranger = come(stage);
    stranger.write_all(said).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    match stranger.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_as_a_room_that_is_there_and_nothing_begins_before_all_are() {
    let forge = Forge::start().await;
    let steps = vec![step("one", &["echo one"]), step("two", &["echo two"])];
    let mut stage = Stage::of(job(&forge.url(), steps), &forge, 2, &[]).await;
    stage.room(0);
    let mut taken = come(&stage);
    let hello = |room, line| Hello { room, line }.bytes();
    taken.write_all(&hello(1, Line::Stderr)).unwrap();
    eventually("the first to be let in", || is_refused(&stage, &hello(1, Line::Stderr)).then_some(()));
    for (room, said) in [(3, Line::Control), (255, Line::Stdout)].map(|(room, line)| (room, hello(room, line))) {
        assert!(is_refused(&stage, &said), "room {room} is none of this task's");
    }
    assert!(is_refused(&stage, b"GET / HTTP/1.1\r\n\r\n"));
    assert!(!stage.board.log().contains("Cloning"), "{}", stage.board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_keep_no_room_out_and_the_door_closes_behind_the_last() {
    let forge = Forge::start().await;
    let mut stage =
        Stage::of(job(&forge.url(), vec![step("one", &["until [ -e go ]; do sleep 0.1; done"])]), &forge, 1, &[]).await;
    let silent: Vec<UnixStream> = (0..300).map(|_| come(&stage)).collect();
    (0..=1).for_each(|number| stage.room(number));
    stage.board.until_log("Step 1/1").await;
    assert!(UnixStream::connect(stage.path("socket")).is_err(), "nobody comes in any more");
    std::fs::write(stage.path("workspace/go"), "").unwrap();
    assert_eq!(stage.report().outcome, Outcome::Success, "{}", stage.board.log());
    drop(silent);
}
