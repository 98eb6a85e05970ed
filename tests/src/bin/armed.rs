//! Every function on a socket, in a process that kills at fail points: `armed DATABASE_URL PORT`.
//!
//! Prints a line once it serves. A line `FAIL_POINT PID` of its standard input arms that point in place of the one before, and is
//! answered by whether that one was reached, `struck` or `armed`: the first time that a point is reached, SIGKILL is sent to the
//! process, which may be this one, and what was going on goes on. Ends with its standard input.

use callboard_tests::scenario;
use edge::Shell;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(database_url), Some(port)) = (arguments.next(), arguments.next()) else { std::process::exit(2) };
    let mut config = scenario::config(database_url);
    config.timing.heartbeat_every = Duration::from_millis(300);
    config.timing.preview_sync_every = Duration::from_millis(200);
    let app = edge::app(localstack::routes(), Shell::new(config).expect("settings of the test itself"));
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("a free port");
    println!("serving");
    std::thread::spawn(|| {
        let mut armed = None;
        for line in stdin().lock().lines().map_while(Result::ok) {
            let was_reached = armed.take().is_some_and(disarm);
            armed = Some(arm(&line));
            println!("{}", if was_reached { "struck" } else { "armed" });
        }
        std::process::exit(0);
    });
    axum::serve(listener, app).await.expect("serving");
}

/// A point, and whether it was reached.
type Armed = (String, Arc<AtomicBool>);

fn arm(line: &str) -> Armed {
    let (point, pid) = line.split_once(' ').expect("FAIL_POINT PID");
    let (pid, reached) = (Pid::from_raw(pid.parse().expect("a process")), Arc::new(AtomicBool::new(false)));
    let is_spent = Arc::clone(&reached);
    let strike = move || {
        if !is_spent.swap(true, Ordering::SeqCst) {
            kill(pid, Signal::SIGKILL).ok();
        }
    };
    fail::cfg_callback(point, strike).expect("a fail point's name");
    (point.to_owned(), reached)
}

fn disarm((point, reached): Armed) -> bool {
    fail::remove(&point);
    reached.swap(true, Ordering::SeqCst)
}
