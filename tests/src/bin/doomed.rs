//! Every function on a socket, in a process that dies at one fail point: `doomed FAIL_POINT DATABASE_URL`.
//!
//! Prints its address. It dies without unwinding, as by SIGKILL, at the moment the fail point is reached; from the
//! third argument on, only when it is reached for that time.

use callboard_tests::scenario;
use edge::Shell;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(point), Some(database_url)) = (arguments.next(), arguments.next()) else { std::process::exit(2) };
    let at: u32 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let reached = AtomicU32::new(0);
    let die = move || {
        if reached.fetch_add(1, Ordering::SeqCst) + 1 == at {
            std::process::abort();
        }
    };
    fail::cfg_callback(point, die).expect("a fail point's name");
    let shell = Shell::new(scenario::config(database_url)).expect("settings of the test itself");
    let app = edge::app(localstack::routes(), shell);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("an address"));
    axum::serve(listener, app).await.expect("serving");
}
