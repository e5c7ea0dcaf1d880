//! The commands: one file each, with `Args` (as typed) and `run`.

pub mod about;
pub mod cat;
pub mod check;
pub mod cleanup;
pub mod completion;
pub mod config;
pub mod copy;
pub mod copyto;
pub mod delete;
pub mod deletefile;
pub mod hashsum;
pub mod help;
pub mod job;
pub mod link;
pub mod listremotes;
pub mod ls;
pub mod lsd;
pub mod lsf;
pub mod lsjson;
pub mod lsl;
pub mod md5sum;
pub mod mkdir;
pub mod moveto;
pub mod mv;
pub mod obscure;
pub mod purge;
pub mod rcat;
pub mod rmdir;
pub mod rmdirs;
pub mod sha1sum;
pub mod size;
pub mod sync;
pub mod touch;
pub mod tree;
pub mod version;

mod change;
mod item;
mod listing;
mod sums;

use crate::{context::Context, error::Outcome};
use anyhow::Result;

/// What to do. Help shows the first line of each command's description.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show total, used and free space
    About(about::Args),
    /// Print the content of files
    Cat(cat::Args),
    /// Compare two sides, change nothing
    Check(check::Args),
    /// Remove unfinished uploads that are older than a day
    Cleanup(cleanup::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Show and change the configuration
    Config(config::Args),
    /// Bring new and changed files over, delete nothing
    Copy(copy::Args),
    /// As copy, a single file under the name that the destination gives
    Copyto(copyto::Args),
    /// Delete the files in a path
    Delete(delete::Args),
    /// Delete one file
    Deletefile(deletefile::Args),
    /// Print hashes of files
    Hashsum(hashsum::Args),
    /// Show help on commands and flags
    Help(help::Args),
    /// Print a public link to a file
    Link(link::Args),
    /// List the configured remotes
    Listremotes(listremotes::Args),
    /// List files with their sizes
    Ls(ls::Args),
    /// List directories or buckets
    Lsd(lsd::Args),
    /// List a path for scripts
    Lsf(lsf::Args),
    /// List a path as JSON
    Lsjson(lsjson::Args),
    /// List files with their sizes and times
    Lsl(lsl::Args),
    /// Print MD5 hashes of files
    Md5sum(md5sum::Args),
    /// Create a directory or bucket
    Mkdir(mkdir::Args),
    /// Copy, then delete each source file that is proved to be there
    #[command(name = "move")]
    Mv(mv::Args),
    /// As move, a single file under the name that the destination gives
    Moveto(moveto::Args),
    /// Obscure a password for the config file
    Obscure(obscure::Args),
    /// Delete a path and all that is in it
    Purge(purge::Args),
    /// Write standard input to a file
    Rcat(rcat::Args),
    /// Delete an empty directory or bucket
    Rmdir(rmdir::Args),
    /// Delete empty directories below a path
    Rmdirs(rmdirs::Args),
    /// Print SHA-1 hashes of files
    Sha1sum(sha1sum::Args),
    /// Show the number of files in a path and their total size
    Size(size::Args),
    /// Make the destination equal to the source, deleting what the source lacks
    Sync(sync::Args),
    /// Set times of files, or create an empty one
    Touch(touch::Args),
    /// Show a path as a tree
    Tree(tree::Args),
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
            Command::About(args) => about::run(args, context).await,
            Command::Cat(args) => cat::run(args, context).await,
            Command::Check(args) => check::run(args, context).await,
            Command::Cleanup(args) => cleanup::run(args, context).await,
            Command::Completion(args) => completion::run(args, context).await,
            Command::Config(args) => config::run(args, context).await,
            Command::Copy(args) => copy::run(args, context).await,
            Command::Copyto(args) => copyto::run(args, context).await,
            Command::Delete(args) => delete::run(args, context).await,
            Command::Deletefile(args) => deletefile::run(args, context).await,
            Command::Hashsum(args) => hashsum::run(args, context).await,
            Command::Help(args) => help::run(args, context).await,
            Command::Link(args) => link::run(args, context).await,
            Command::Listremotes(args) => listremotes::run(args, context).await,
            Command::Ls(args) => ls::run(args, context).await,
            Command::Lsd(args) => lsd::run(args, context).await,
            Command::Lsf(args) => lsf::run(args, context).await,
            Command::Lsjson(args) => lsjson::run(args, context).await,
            Command::Lsl(args) => lsl::run(args, context).await,
            Command::Md5sum(args) => md5sum::run(args, context).await,
            Command::Mkdir(args) => mkdir::run(args, context).await,
            Command::Mv(args) => mv::run(args, context).await,
            Command::Moveto(args) => moveto::run(args, context).await,
            Command::Obscure(args) => obscure::run(args, context).await,
            Command::Purge(args) => purge::run(args, context).await,
            Command::Rcat(args) => rcat::run(args, context).await,
            Command::Rmdir(args) => rmdir::run(args, context).await,
            Command::Rmdirs(args) => rmdirs::run(args, context).await,
            Command::Sha1sum(args) => sha1sum::run(args, context).await,
            Command::Size(args) => size::run(args, context).await,
            Command::Sync(args) => sync::run(args, context).await,
            Command::Touch(args) => touch::run(args, context).await,
            Command::Tree(args) => tree::run(args, context).await,
            Command::Version(args) => version::run(args, context).await,
        }
    }
}
