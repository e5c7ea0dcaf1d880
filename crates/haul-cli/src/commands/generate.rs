//! `haul generate`: the reference and the man pages, for `make` and packagers. Hidden: users have no use for it.

use crate::{
    cli::command_with_flags,
    context::Context,
    error::CommandResult,
    print,
    reference::{man, markdown, tree},
};
use anyhow::{Context as _, Result};
use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
};

/// What to make.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(clap::Subcommand, Debug)]
enum GenerateCommand {
    /// Print docs/reference.md
    Reference,
    /// Write the man pages into a directory
    Man {
        /// The directory, which must exist
        dir: PathBuf,
    },
}

/// Makes it.
pub async fn run(args: Args, _: &Context) -> Result<CommandResult> {
    let tree = tree(command_with_flags());
    match args.what {
        GenerateCommand::Reference => print::text(&markdown::page(&tree))?,
        GenerateCommand::Man { dir } => {
            for (name, page) in man::pages(&tree)? {
                write(&dir.join(name), &page)?;
            }
        }
    }
    Ok(CommandResult::Done)
}

fn write(path: &Path, page: &[u8]) -> Result<()> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    opened.and_then(|mut file| file.write_all(page)).with_context(|| format!("can't write {}", path.display()))
}
