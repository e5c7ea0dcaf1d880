//! The commands: one file each, with `Args` (as typed) and `run`.

pub mod check;
pub mod completion;
pub mod config;
pub mod copy;
pub mod copyto;
pub mod help;
pub mod job;
pub mod listremotes;
pub mod moveto;
pub mod mv;
pub mod obscure;
pub mod sync;
pub mod version;

use crate::{context::Context, error::Outcome};
use anyhow::Result;

/// What to do. Help shows the first line of each command's description.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Compare two sides, change nothing
    Check(check::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Show and change the configuration
    Config(config::Args),
    /// Bring new and changed files over, delete nothing
    Copy(copy::Args),
    /// As copy, a single file under the name that the destination gives
    Copyto(copyto::Args),
    /// Show help on commands and flags
    Help(help::Args),
    /// List the configured remotes
    Listremotes(listremotes::Args),
    /// Copy, then delete each source file that is proved to be there
    #[command(name = "move")]
    Mv(mv::Args),
    /// As move, a single file under the name that the destination gives
    Moveto(moveto::Args),
    /// Obscure a password for the config file
    Obscure(obscure::Args),
    /// Make the destination equal to the source, deleting what the source lacks
    Sync(sync::Args),
    /// Show the version
    Version(version::Args),
}

impl Command {
    /// True for jobs: on Ctrl-C they are told to stop and end in their own order. Other commands are dropped.
    pub fn finishes_itself(&self) -> bool {
        use Command::{Copy, Copyto, Moveto, Mv, Sync};
        matches!(self, Copy(_) | Copyto(_) | Moveto(_) | Mv(_) | Sync(_))
    }

    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Outcome> {
        match self {
            Command::Check(args) => check::run(args, context).await,
            Command::Completion(args) => completion::run(args, context).await,
            Command::Config(args) => config::run(args, context).await,
            Command::Copy(args) => copy::run(args, context).await,
            Command::Copyto(args) => copyto::run(args, context).await,
            Command::Help(args) => help::run(args, context).await,
            Command::Listremotes(args) => listremotes::run(args, context).await,
            Command::Mv(args) => mv::run(args, context).await,
            Command::Moveto(args) => moveto::run(args, context).await,
            Command::Obscure(args) => obscure::run(args, context).await,
            Command::Sync(args) => sync::run(args, context).await,
            Command::Version(args) => version::run(args, context).await,
        }
    }
}
