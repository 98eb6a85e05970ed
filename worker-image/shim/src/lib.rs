//! The first process of a *room*: a container of a task of ECS's in which one step runs, in whatever image.
//!
//! All containers of such a task start together. Which step runs when is said by the *runner*, a container of the same task, over a
//! Unix socket in a volume that they share: a room connects, says its number, and waits ([`said`]). Its program begins when the runner
//! has seen all rooms, has no process left when it ends, and ends with the runner ([`room`]).
//!
//! It brings nothing into an image but one file without an interpreter or a library, so that any image will do.

mod asked;
mod end;
mod program;
pub mod room;
pub mod said;
pub mod seccomp;

/// Where the program is in every container of a task.
pub const PROGRAM: &str = "/run/callboard/bin/shim";
/// Where the runner listens.
pub const SOCKET: &str = "/run/callboard/socket";
/// The home of all steps, if the task has a volume there; else each room has one of its own.
pub const HOME: &str = "/home/build";
