//! Live previews, as a host holds them (SPEC.md, 4): the board says what each is to become, this does it and says so.
//!
//! What is on disk ([`folder`]) and what runs is the truth; nothing else outlives the worker. A [`keeper`] per preview holds its
//! port and its service, also while no worker is there. `reconcile` calls the board now and then, and at once when something
//! changed, on a thread and a connection of its own; [`decide`] says what is reported and done; `start` and `end` do it.

mod call;
pub mod decide;
mod end;
mod exact;
pub mod folder;
mod hear;
pub mod keeper;
mod living;
mod reconcile;
mod round;
pub mod settings;
mod start;
mod users;

pub use living::living;
pub use reconcile::{Reconciling, recover, start};
pub use users::Users;
