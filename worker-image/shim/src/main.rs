//! `shim NUMBER [SOCKET]`: becomes the room of that number. Exits as its program did; with 0 if it was not needed, and with 125 if its runner
//! is gone.

use callboard_shim::{SOCKET, room};
use std::path::Path;
use std::process::ExitCode;

/// As `sysexits.h` has it.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let number = args.next().and_then(|number| number.to_str()?.parse().ok());
    let socket = args.next();
    let Some(number) = number.filter(|_| args.next().is_none()) else {
        eprintln!("usage: shim NUMBER [SOCKET]");
        return ExitCode::from(USAGE);
    };
    ExitCode::from(room::run(number, socket.as_deref().map_or(Path::new(SOCKET), Path::new)))
}
