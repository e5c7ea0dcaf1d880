//! `snapshot`: versions of folders on any remote. Here are arguments, opening and words; `haul-snapshot` knows what they are.

mod check;
mod forget;
mod gc;
mod list;
mod pull;
mod push;
mod remove;

use crate::{
    context::Context,
    error::{CommandResult, usage},
};
use anyhow::Result;
use haul_core::units::size_text;
use haul_snapshot::record::Totals;
use std::ffi::{OsStr, OsString};

/// What to do with snapshots.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: SnapshotCommand,
}

#[derive(clap::Subcommand, Debug)]
enum SnapshotCommand {
    /// Create a version of a directory
    ///
    /// Uploads what the remote is missing, then prints the version. An unchanged directory makes no new version.
    Push(push::Args),
    /// Restore a version into a directory
    ///
    /// Changes only what differs. Extra files stay, unless --delete is given.
    Pull(pull::Args),
    /// List snapshots, or the versions of one
    List(list::Args),
    /// Verify that all content of the versions exists and has the right size
    ///
    /// --verify=read reads all of it. Exits with 1 when something is missing or wrong.
    Check(check::Args),
    /// Show what changed between two versions
    ///
    /// Prints a sign and a path on each line: + added, - removed, * changed content, m changed mode or time. Exits with 1 if they differ.
    Diff(list::DiffArgs),
    /// Remove a version; its content stays until gc
    ///
    /// Other versions may use the content; haul snapshot gc deletes content that no version uses.
    Rm(remove::RmArgs),
    /// Remove versions by rules; their content stays until gc
    ///
    /// Applies the rules to each snapshot separately. A version stays if any rule keeps it; the output shows which. If a version
    /// can't be read, nothing is removed. haul snapshot gc deletes the content.
    Forget(forget::Args),
    /// Delete content that no version uses
    ///
    /// Reads all versions first. Deletes nothing if one can't be read, if a push is running, or if there are signs of DVC on the
    /// same remote. With --dry-run, only shows what would be deleted.
    Gc(gc::Args),
}

impl Args {
    /// True for what puts something in order before it ends: jobs, and what has a mark at the remote.
    pub fn finishes_itself(&self) -> bool {
        self.destination().is_some() || matches!(self.what, SnapshotCommand::Gc(_))
    }

    /// Where a job brings its files, as typed.
    pub fn destination(&self) -> Option<&OsStr> {
        match &self.what {
            SnapshotCommand::Push(args) => Some(args.destination()),
            SnapshotCommand::Pull(args) => Some(args.destination()),
            _ => None,
        }
    }
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    match args.what {
        SnapshotCommand::Push(args) => push::run(args, ctx).await,
        SnapshotCommand::Pull(args) => pull::run(args, ctx).await,
        SnapshotCommand::List(args) => list::run(args, ctx).await,
        SnapshotCommand::Check(args) => check::run(args, ctx).await,
        SnapshotCommand::Diff(args) => list::diff(args, ctx).await,
        SnapshotCommand::Rm(args) => remove::rm(args, ctx).await,
        SnapshotCommand::Forget(args) => forget::run(args, ctx).await,
        SnapshotCommand::Gc(args) => gc::run(args, ctx).await,
    }
}

/// Where snapshots are.
#[derive(clap::Args, Debug)]
struct Remote {
    /// Remote or local path that holds the snapshots
    #[arg(value_name = "REMOTE:PATH")]
    remote: OsString,
}

/// `NAME` or `NAME@VERSION`, as typed.
fn named(typed: &str) -> Result<(String, Option<String>)> {
    haul_snapshot::name::parse(typed).map_err(usage)
}

/// Refuses what a job with snapshots can't do.
fn refuse(ctx: &Context, flags: &[(bool, &str)]) -> Result<()> {
    let copy = &ctx.flags.copy;
    let common = [(!copy.compare_dest.is_empty(), "--compare-dest"), (!copy.copy_dest.is_empty(), "--copy-dest")];
    match common.iter().chain(flags).find(|(given, _)| *given) {
        Some((_, flag)) => Err(usage(format!("{flag} has no meaning here: leave it out"))),
        None => Ok(()),
    }
}

/// This process, for who finds its mark at the remote.
fn this_process() -> String {
    format!("{}, process {}", crate::machine::host(), std::process::id())
}

/// `3 files, 2 directories, 1 symlink, 5 KiB`.
fn in_words(totals: &Totals) -> String {
    let count = |n: u64, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    let mut words = vec![count(totals.files, "file", "files")];
    let rest = [(totals.dirs, "directory", "directories"), (totals.links, "symlink", "symlinks")];
    words.extend(rest.iter().filter(|(n, ..)| *n > 0).map(|(n, one, more)| count(*n, one, more)));
    words.push(size_text(totals.bytes));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_version_holds_is_said_in_words() {
        let totals = Totals { files: 1, bytes: 2048, dirs: 0, links: 2 };
        assert_eq!(in_words(&totals), "1 file, 2 symlinks, 2 KiB");
        let totals = Totals { files: 2, bytes: 5, dirs: 1, links: 1 };
        assert_eq!(in_words(&totals), "2 files, 1 directory, 1 symlink, 5 B");
        assert_eq!(in_words(&Totals::default()), "0 files, 0 B");
    }
}
