//! Far hosts through the user's own `ssh`, so that its config, agents, keys, jump hosts and prompts are the user's. One login carries
//! many sessions, and each is a pipe of bytes to a subsystem or command there.
//!
//! The first session is the master of the others: when its pipe is closed, be it because this process was killed, ssh ends it, and
//! with the last session it ends itself and removes its socket. A master that the user has open already is ridden instead.
//!
//! Nothing here reads the environment, the command line or a terminal. ssh does: it asks on the terminal by itself.

mod askpass;
mod host;
mod login;
mod messages;
pub mod options;
mod pipe;
mod socket_dir;
mod target;

pub use host::{Config, is_known};
pub use login::{OpeningSession, Patience, Ssh, SshSettings};
pub use pipe::{End, Pipe};
pub use target::{Remote, Target};
