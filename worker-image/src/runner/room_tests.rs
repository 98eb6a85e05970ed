use super::*;
use std::collections::BTreeMap;
use tokio::task::JoinHandle;

const HOUR: Duration = Duration::from_secs(3600);

fn orders() -> Orders {
    Orders {
        argv: Vec::new(),
        env: BTreeMap::new(),
        usual_path: String::new(),
        files: Vec::new(),
        inside: "/inside".into(),
        directory: "/".into(),
        processes_max: 1,
        linger_ms: 0,
        left_ms: 0,
    }
}

/// What runs in a room that says this, and the room's end of its line: it has heard its orders.
async fn started(said: Vec<u8>, fence_at: Boot, grace: Duration) -> (Running, UnixStream) {
    let [(control, its), (stdout, _), (stderr, _)] = [0; 3].map(|_| UnixStream::pair().unwrap());
    let control = Waiting::hear(control);
    let (running, its) = tokio::join!(Room { control, stdout, stderr }.start(orders(), fence_at, grace), async {
        let mut its = its;
        hear(&mut its).await;
        its.write_all(&said).await.unwrap();
        its
    });
    (running.unwrap(), its)
}

async fn hear(its: &mut UnixStream) -> serde_json::Value {
    let mut begin = [0; LENGTH_BYTES];
    its.read_exact(&mut begin).await.unwrap();
    let mut json = vec![0; length(begin, 9999).unwrap()];
    its.read_exact(&mut json).await.unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn says(said: &[ToRunner]) -> Vec<u8> {
    said.iter().flat_map(|said| frame(said).unwrap()).collect()
}

/// How what runs in a room ends that says this and no more.
async fn check(said: Vec<u8>, expected: Ended) {
    let (running, its) = started(said, Boot::now().plus(HOUR), HOUR).await;
    drop(its);
    assert_eq!(running.ended.await, expected);
}

const ENDED: ToRunner = ToRunner::Ended { code: 3, out_of_memory: true };

#[tokio::test]
async fn a_room_says_how_it_went() {
    let exceeded = Some(Exceeded::Memory);
    check(says(&[ToRunner::Started, ENDED]), Ended::Exited { code: 3, exceeded }).await;
    let why = String::from("no room");
    check(says(&[ToRunner::NotStarted { why: why.clone() }]), Ended::NeverStarted(why)).await;
}

#[tokio::test]
async fn a_room_that_is_asked_to_end_first_is_heard_as_if_the_runner_had_been() {
    let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let exceeded = Some(Exceeded::Memory);
    check(says(&[ToRunner::Started, ToRunner::AskedToEnd, ENDED]), Ended::Exited { code: 3, exceeded }).await;
    told.recv().await.unwrap();
    let lost = Ended::Broken("the step's container was lost".into());
    check(says(&[ToRunner::Started, ToRunner::AskedToEnd, ToRunner::AskedToEnd, ENDED]), lost).await;
}

#[tokio::test]
async fn a_room_that_is_gone_or_says_what_is_none_is_lost() {
    let lost = || Ended::Broken("the step's container was lost".into());
    let never = || Ended::NeverStarted("its container ended before its program began".into());
    check(Vec::new(), never()).await;
    check([0xff; 64].into(), never()).await;
    check(says(&[ToRunner::Started]), lost()).await;
    check([says(&[ToRunner::Started]), b"\x04\0\0\0nope".into()].concat(), lost()).await;
    check([says(&[ToRunner::Started]), b"\xff\xff\0\0".into()].concat(), lost()).await;
    check(says(&[ToRunner::Started, ToRunner::Started, ENDED]), lost()).await;
}

#[tokio::test]
async fn what_is_to_end_before_it_has_begun_is_asked_once_it_has() {
    let (running, mut its) = started(Vec::new(), Boot::now().plus(HOUR), HOUR).await;
    running.control.terminate();
    let ended: JoinHandle<Ended> = tokio::spawn(running.ended);
    its.write_all(&says(&[ToRunner::Started])).await.unwrap();
    assert_eq!(hear(&mut its).await, "terminate");
    its.write_all(&says(&[ENDED])).await.unwrap();
    ended.await.unwrap();
}

#[tokio::test]
async fn past_its_fence_a_program_is_asked_to_end_and_then_ended() {
    let grace = Duration::from_millis(500);
    let (running, mut its) = started(says(&[ToRunner::Started]), Boot::now(), grace).await;
    let ended: JoinHandle<Ended> = tokio::spawn(running.ended);
    assert_eq!([hear(&mut its).await, hear(&mut its).await], ["terminate", "kill"]);
    its.write_all(&says(&[ENDED])).await.unwrap();
    assert_eq!(ended.await.unwrap(), Ended::Fenced);
}

#[tokio::test]
async fn a_room_hears_how_long_it_may_go_on_without_its_runner() {
    let (running, mut its) = started(says(&[ToRunner::Started]), Boot::now().plus(HOUR), HOUR).await;
    running.control.renew(Boot(u64::MAX));
    let ended: JoinHandle<Ended> = tokio::spawn(running.ended);
    let left_ms = hear(&mut its).await["left"]["ms"].as_u64().unwrap();
    assert!(left_ms > millis(HOUR * 1000), "{left_ms}");
    ended.abort();
}

#[tokio::test]
async fn a_room_in_which_nothing_runs_yet_is_heard_too_and_one_that_says_more_is_left_alone() {
    let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let [(control, mut its), (nonsense, mut other)] = [0; 2].map(|_| UnixStream::pair().unwrap());
    let waiting = Waiting::hear(control);
    its.write_all(&says(&[ToRunner::AskedToEnd])).await.unwrap();
    told.recv().await.unwrap();
    assert!(waiting.take().await.is_some(), "it may still be needed to tidy up");
    let waiting = Waiting::hear(nonsense);
    other.write_all(&says(&[ENDED])).await.unwrap();
    assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
    assert!(waiting.take().await.is_none());
}
