//! `haul completion`: the script that makes a shell complete haul's commands and flags.

use crate::{cli, context::Context, error::Outcome};
use anyhow::{Context as _, Result};
use clap_complete::{Shell, generate};
use std::{fs::OpenOptions, io::Write as _};

/// The shells whose scripts ask haul.
const SHELLS: [(&str, &str); 3] = [
    ("bash", include_str!("../complete/haul.bash")),
    ("zsh", include_str!("../complete/haul.zsh")),
    ("fish", include_str!("../complete/haul.fish")),
];

/// For which shell.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
    /// Write to this file instead of standard output; - is standard output
    file: Option<std::path::PathBuf>,
}

fn script(shell: &str) -> Option<&'static str> {
    SHELLS.iter().find(|(name, _)| *name == shell).map(|(_, script)| *script)
}

/// Prints the script.
pub async fn run(args: Args, _: &Context) -> Result<Outcome> {
    let script = match script(&args.shell.to_string()) {
        Some(script) => script.as_bytes().to_vec(),
        // The other shells get commands and flags as haul has them now; flags complete after any command too.
        None => {
            // Without their letters: some commands give those another meaning.
            let mut tree = cli::command_with_flags().mut_args(|arg| arg.global(true).short(None));
            let mut script = Vec::new();
            generate(args.shell, &mut tree, "haul", &mut script);
            script
        }
    };
    match args.file.filter(|f| f.as_os_str() != "-") {
        Some(file) => {
            let written = OpenOptions::new().write(true).create(true).truncate(true).open(&file);
            let written = written.and_then(|mut f| f.write_all(&script));
            written.with_context(|| format!("can't write {}", file.display()))?;
        }
        None => crate::print::text(&String::from_utf8(script)?)?,
    }
    Ok(Outcome::Done)
}
