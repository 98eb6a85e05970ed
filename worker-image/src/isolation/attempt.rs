//! One thing run in isolation, to see what comes of it.

use super::plan::Env;
use super::{Ended, Exceeded, Isolation, Limits, Running, Task};
use crate::clock::Boot;
use crate::network::WayOut;
use crate::site::Site;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

const PATIENCE: Duration = Duration::from_secs(20);

/// What is tried.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The back end.
    pub isolation: &'a dyn Isolation,
    /// A build's directory, of slot 0.
    pub site: &'a Site,
    /// An image, and in it a program with its arguments.
    pub program: (String, Vec<String>),
    /// Its way out.
    pub way_out: Option<WayOut>,
    /// What it may take.
    pub limits: Limits,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What it wrote to its standard output.
    pub said: String,
    /// What it wrote to its standard error.
    pub complaint: String,
    /// Its exit code; 128 + N for a signal N.
    pub code: i32,
    /// The limit that it met, if any.
    pub exceeded: Option<Exceeded>,
}

impl Attempt<'_> {
    /// Runs it, just as a step would be.
    ///
    /// # Errors
    ///
    /// Why it did not come up, or that it did not end in time.
    pub async fn run(self) -> Result<Outcome, String> {
        let (image, argv) = self.program;
        let task = Task {
            image,
            argv,
            env: Env::new(),
            files: Vec::new(),
            directory: self.site.directory.clone(),
            slot: 0,
            number: 0,
            way_out: self.way_out,
            limits: self.limits,
            fence_at: Boot::now().plus(PATIENCE),
            kill_grace: Duration::ZERO,
        };
        let Running { mut stdout, mut stderr, ended, control: _control } =
            self.isolation.start(task).await.map_err(|error| error.to_string())?;
        let (mut said, mut complaint) = (String::new(), String::new());
        let (ended, ..) = tokio::join!(ended, stdout.read_to_string(&mut said), stderr.read_to_string(&mut complaint));
        let complaint = complaint.trim().to_owned();
        match ended {
            Ended::Exited { code, exceeded } => Ok(Outcome { said: said.trim().into(), complaint, code, exceeded }),
            Ended::Fenced => Err("it did not end in time".into()),
            Ended::NeverStarted(why) | Ended::Broken(why) => Err(format!("{why} {complaint}")),
        }
    }
}
