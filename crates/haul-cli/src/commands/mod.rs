//! The commands: one file each, with `Args` (as typed) and `run`.

pub mod completion;
pub mod config;
pub mod help;
pub mod listremotes;
pub mod obscure;
pub mod version;

use crate::{context::Context, error::Outcome};
use anyhow::Result;

/// What to do. Help shows the first line of each command's description.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Show and change the configuration
    Config(config::Args),
    /// Show help on commands and flags
    Help(help::Args),
    /// List the configured remotes
    Listremotes(listremotes::Args),
    /// Obscure a password for the config file
    Obscure(obscure::Args),
    /// Show the version
    Version(version::Args),
}

impl Command {
    /// True for jobs: on Ctrl-C they are told to stop and end in their own order. Other commands are dropped.
    pub fn finishes_itself(&self) -> bool {
        false
    }

    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Outcome> {
        match self {
            Command::Completion(args) => completion::run(args, context).await,
            Command::Config(args) => config::run(args, context).await,
            Command::Help(args) => help::run(args, context).await,
            Command::Listremotes(args) => listremotes::run(args, context).await,
            Command::Obscure(args) => obscure::run(args, context).await,
            Command::Version(args) => version::run(args, context).await,
        }
    }
}
