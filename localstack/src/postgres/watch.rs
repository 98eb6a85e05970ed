//! What ends a server when we are gone, however we go: a shell that reads from a pipe whose other end nobody but us holds.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::process::{Child, Command};

/// Waits for the end of its input; then asks the server to end, without waiting for its clients, and after 20 s without a last
/// checkpoint. The pid file says whether the process still is that server.
const SCRIPT: &str = r#"
read -r _
serves() { [ -r "$2" ] && read -r pid <"$2" && [ "$pid" = "$1" ]; }
serves "$@" && kill -INT "$1"
tries=0
while serves "$@" && [ $((tries += 1)) -le 200 ]; do sleep 0.1; done
serves "$@" && kill -QUIT "$1"
"#;

/// Watches over one server at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<Child>>>);

impl Watch {
    /// Watches over the server that runs as `pid` from now on, in place of the one before. `shell` makes the command for a
    /// program, with the rights to signal the server.
    pub(super) fn over(&self, pid: u32, data: &Path, shell: impl Fn(&str) -> Command) -> std::io::Result<()> {
        let mut command = shell("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(pid.to_string()).arg(data.join("postmaster.pid"));
        let watching = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        drop(self.put(Some(watching)));
        Ok(())
    }

    /// There is nothing to watch over any more.
    pub(super) async fn end(&self) {
        if let Some(mut watching) = self.put(None) {
            let _ = watching.kill().await;
        }
    }

    fn put(&self, next: Option<Child>) -> Option<Child> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), next)
    }
}
