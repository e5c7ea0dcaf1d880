//! `haul generate`: the reference and the man pages, for `make` and packagers. Hidden: users have no use for it.

use crate::{
    cli::command_with_flags,
    context::Context,
    error::Outcome,
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
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Print docs/reference.md
    Reference,
    /// Write the man pages into a directory
    Man {
        /// The directory, which must exist
        dir: PathBuf,
    },
}

/// Makes it.
pub async fn run(args: Args, _: &Context) -> Result<Outcome> {
    let tree = tree(command_with_flags());
    match args.what {
        What::Reference => print::text(&markdown::page(&tree))?,
        What::Man { dir } => {
            for (name, page) in man::pages(&tree)? {
                write(&dir.join(name), &page)?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn write(path: &Path, page: &[u8]) -> Result<()> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    opened.and_then(|mut file| file.write_all(page)).with_context(|| format!("can't write {}", path.display()))
}
