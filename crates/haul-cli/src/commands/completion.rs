//! `haul completion`: the script that makes a shell complete haul's commands, flags, remotes and paths.

use crate::{context::Context, error::CommandResult};
use anyhow::{Context as _, Result};
use std::{fs::OpenOptions, io::Write as _};

/// The shells. Their scripts ask haul (`haul __complete`), so they are small and know of remotes too.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// For which shell.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
    /// Write to this file instead of standard output; - is standard output
    file: Option<std::path::PathBuf>,
}

impl Shell {
    fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("../complete/haul.bash"),
            Shell::Fish => include_str!("../complete/haul.fish"),
            Shell::Zsh => include_str!("../complete/haul.zsh"),
        }
    }
}

/// Prints the script.
pub async fn run(args: Args, _: &Context) -> Result<CommandResult> {
    let script = args.shell.script();
    match args.file.filter(|f| f.as_os_str() != "-") {
        Some(file) => {
            let written = OpenOptions::new().write(true).create(true).truncate(true).open(&file);
            let written = written.and_then(|mut f| f.write_all(script.as_bytes()));
            written.with_context(|| format!("can't write {}", file.display()))?;
        }
        None => crate::print::text(script)?,
    }
    Ok(CommandResult::Done)
}
