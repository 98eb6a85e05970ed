//! What is asked of ECS, in words of our own: what of it a worker uses, and nothing of any SDK's.

use super::definition::Definition;
use super::launch::Launch;
use futures::future::BoxFuture;
use std::fmt;

/// Why ECS did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Too many calls: the same again, later.
    Throttled(String),
    /// It may have been done or not: the same again, later.
    Unanswered(String),
    /// It will not, and why.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled(why) | Self::Unanswered(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// What RunTask came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// There is a task, by its ARN.
    Task(String),
    /// There is none, and why.
    Failed(String),
}

/// What DescribeTasks says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The tasks that it knows.
    pub tasks: Vec<Seen>,
    /// The ARNs that it does not.
    pub missing: Vec<String>,
}

/// A task as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its ARN.
    pub arn: String,
    /// Who started it: the build.
    pub started_by: Option<String>,
    /// Its definition's ARN.
    pub definition: Option<String>,
    /// Where it is on its way, such as `RUNNING`.
    pub status: String,
    /// Why it stopped, for programs.
    pub stop_code: Option<String>,
    /// The same for a person.
    pub stopped_reason: Option<String>,
    /// When it was made, by ECS's clock, in milliseconds.
    pub created_at_ms: Option<i64>,
    /// When its containers had ended, by the same clock.
    pub ended_at_ms: Option<i64>,
    /// Its containers.
    pub containers: Vec<Room>,
}

/// A container as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Its name.
    pub name: String,
    /// Its exit code, if it ended with one.
    pub exit_code: Option<i32>,
    /// What ECS says of its end.
    pub reason: Option<String>,
}

impl Seen {
    /// Whether all of its containers have ended: what follows is ECS clearing up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "DEPROVISIONING" | "STOPPED" | "DELETED")
    }

    /// One of its containers.
    #[must_use]
    pub fn room(&self, name: &str) -> Option<&Room> {
        self.containers.iter().find(|room| room.name == name)
    }
}

/// A call's answer.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Trouble>>;

/// ECS, once per call: nothing is tried again here.
pub trait Calls: fmt::Debug + Send + Sync {
    /// DescribeTaskDefinition: the ARN of the latest of a family; none if there is none.
    fn definition<'a>(&'a self, family: &'a str) -> Answer<'a, Option<String>>;
    /// RegisterTaskDefinition: its ARN.
    fn register<'a>(&'a self, definition: &'a Definition) -> Answer<'a, String>;
    /// RunTask.
    fn run<'a>(&'a self, launch: &'a Launch) -> Answer<'a, Ran>;
    /// DescribeTasks, of 100 at most.
    fn describe<'a>(&'a self, tasks: &'a [String]) -> Answer<'a, Described>;
    /// StopTask.
    fn stop<'a>(&'a self, task: &'a str, reason: &'a str) -> Answer<'a, ()>;
    /// ListTasks: those that are to run and were started by this, or by anybody; all pages.
    fn list<'a>(&'a self, started_by: Option<&'a str>) -> Answer<'a, Vec<String>>;
}
