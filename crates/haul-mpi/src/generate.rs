//! `haul-mpi generate`: man pages and completion scripts, for `make install-mpi`. Hidden: users have no use for it. MPI isn't started.

use clap::{Args, Command, Subcommand};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// What to make.
#[derive(Args, Debug)]
pub struct Generate {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(Subcommand, Debug)]
enum GenerateCommand {
    /// Write the man pages into a directory, which must exist
    Man {
        /// The directory
        dir: PathBuf,
    },
    /// Print the script that makes a shell complete commands and options
    Completion {
        /// The shell
        shell: Shell,
    },
}

impl Generate {
    /// Makes it of this command line.
    ///
    /// Errors: one line.
    pub fn run(&self, tree: Command) -> Result<(), String> {
        match &self.what {
            GenerateCommand::Man { dir } => {
                for (name, page) in pages(tree).map_err(|e| e.to_string())? {
                    let path = dir.join(name);
                    write(&path, &page).map_err(|e| format!("{}: {e}", path.display()))?;
                }
                Ok(())
            }
            GenerateCommand::Completion { shell } => {
                let mut script = Vec::new();
                generate(*shell, &mut tree.clone(), "haul-mpi", &mut script);
                io::stdout().write_all(&script).map_err(|e| format!("standard output: {e}"))
            }
        }
    }
}

fn write(path: &Path, page: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(page)
}

/// `haul-mpi.1`, and a page for each command: file name and text.
fn pages(tree: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut tree = tree.disable_help_subcommand(true);
    // Pages are called by their commands' whole names.
    tree.build();
    let commands = tree.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(&tree).chain(commands).map(page).collect()
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let title = command.get_display_name().unwrap_or_else(|| command.get_name());
    let man = Man::new(command.clone()).title(title).source(format!("haul-mpi {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.manual("haul manual").render(&mut text)?;
    Ok((format!("{title}.1"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_options() {
        let pages = pages(<crate::args::Cli as clap::CommandFactory>::command()).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["haul-mpi.1", "haul-mpi-dcp.1", "haul-mpi-sync.1", "haul-mpi-check.1", "haul-mpi-delete.1"]);
        let text = |at: usize| String::from_utf8_lossy(&pages[at].1).replace('\\', "");
        assert!(text(2).contains("--link-dest") && text(0).contains("haul-mpi-sync(1)"));
        assert!(pages.iter().all(|(_, page)| !String::from_utf8_lossy(page).contains("generate")));
    }
}
