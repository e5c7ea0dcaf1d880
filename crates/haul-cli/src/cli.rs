//! The command line: what can be typed, and what was.

use crate::{
    args,
    colour::Choice,
    commands::Command,
    environment::env,
    error::{Usage, code},
    flags::{Flags, stores},
    help,
};
use clap::{
    CommandFactory as _, FromArgMatches as _, Parser,
    error::{ContextKind, ContextValue},
};
use haul_remotes::StoreFlags;
use std::ffi::OsString;

/// Moves data between clouds, clusters and disks.
#[derive(Parser)]
#[command(
    name = "haul",
    bin_name = "haul",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "haul help COMMAND explains a command. haul help flags lists the flags that work with any command;\n\
                  haul help environment lists variables, haul help exit-codes what haul exits with."
)]
pub struct Cli {
    /// Flags that stand before or after any command.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands and all flags, shown in the help.
pub fn command_with_flags() -> clap::Command {
    help::arrange(Cli::command().args(stores::all()))
}

/// The commands; the flags work but only `haul help flags` shows them.
pub fn command() -> clap::Command {
    command_with_flags().mut_args(|arg| arg.hide(true))
}

/// A command line that was understood.
pub struct Invocation {
    /// Command and flags.
    pub cli: Cli,
    /// Options of stores.
    pub backends: StoreFlags,
    /// The line in order: flags that belong to no command, each one word, then the command with its own.
    pub line: Vec<OsString>,
}

/// Result of a parsed command line.
pub enum Parsed {
    /// A command to run.
    Run(Box<Invocation>),
    /// Help or version was asked for and shown.
    Said(u8),
}

/// Reads a command line, whose first word is the program's name; what is shown of help has colours as `colour` says.
pub fn parse(argv: Vec<OsString>, colour: Choice) -> Result<Parsed, Usage> {
    let mut tree = command();
    tree.build();
    let line = args::arrange(&tree, argv, &|name| if stores::is_variable(name) { None } else { env(name) })?;
    let parsed = command().color(colour.clap()).try_get_matches_from(&line);
    let cli =
        parsed.and_then(|matches| Cli::from_arg_matches(&matches).map(|cli| (cli, stores::from_matches(&matches))));
    match cli {
        Ok((mut cli, backends)) => {
            cli.flags.meta.links |= cli.command.keeps_links() && !cli.flags.meta.copy_links;
            Ok(Parsed::Run(Box::new(Invocation { cli, backends, line })))
        }
        Err(e) if e.use_stderr() && e.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Usage(explained(&e, &line)))
        }
        Err(e) => {
            // Nothing is left to do when the help can't be printed.
            let _ = e.print();
            Ok(Parsed::Said(if e.use_stderr() { code::USAGE } else { code::OK }))
        }
    }
}

/// The problem of this line: which variable has the value, or how several sources are given.
fn explained(error: &clap::Error, line: &[OsString]) -> String {
    let text = first_paragraph(&error.render().to_string());
    let context_value = |kind| match error.get(kind) {
        Some(ContextValue::String(value)) => Some(value.as_str()),
        _ => None,
    };
    let flag = context_value(ContextKind::InvalidArg).unwrap_or_default();
    if let Some(value) = context_value(ContextKind::InvalidValue) {
        let long = flag.trim_start_matches("--").split([' ', '=']).next().unwrap_or_default();
        let from = args::variables(long).into_iter().find(|name| env(name).is_some_and(|given| given == value));
        return match from {
            Some(name) => format!("{name}: {text}"),
            None => text,
        };
    }
    let verb = line.iter().skip(1).filter_map(|word| word.to_str()).find(|word| !word.starts_with('-'));
    if let Some(verb @ ("copy" | "move" | "sync")) = verb
        && error.kind() == clap::error::ErrorKind::UnknownArgument
        && !flag.starts_with('-')
    {
        return format!(
            "{text}: haul {verb} takes one source and one destination. For several files give their directory and \
             --include or --files-from, or use haul rsync, which takes several sources"
        );
    }
    text
}

/// clap's message without its `error:` and usage, on one line.
fn first_paragraph(text: &str) -> String {
    let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // The standard library's words for a number that can't be read.
    let value = line.split('\'').nth(1).and_then(|value| value.strip_prefix('-')).unwrap_or_default();
    let is_negative = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = if is_negative { "must be 0 or more" } else { "it is not a whole number" };
    line.replace("invalid digit found in string", wrong).replace("invalid float literal", "it is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_command_tree_holds_together() {
        command_with_flags().debug_assert();
    }

    #[test]
    fn no_flag_of_a_command_hides_a_global_one_of_another_meaning() {
        let root = command();
        let shorts: BTreeMap<char, &str> =
            root.get_arguments().filter_map(|a| Some((a.get_short()?, a.get_long()?))).collect();
        for sub in root.get_subcommands() {
            for arg in sub.get_arguments() {
                let (Some(short), Some(long)) = (arg.get_short(), arg.get_long()) else { continue };
                let global = shorts.get(&short).copied().unwrap_or(long);
                assert_eq!(global, long, "-{short} of haul {}", sub.get_name());
            }
        }
    }

    #[test]
    fn claps_words_become_one_line() {
        for (value, why) in [("x", "it is not a whole number"), ("-1", "must be 0 or more")] {
            let typed = format!("--transfers={value}");
            let error = command().try_get_matches_from(["haul", &typed, "version"]).unwrap_err();
            let line = format!("invalid value '{value}' for '--transfers <N>': {why}");
            assert_eq!(first_paragraph(&error.render().to_string()), line);
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let tree = command();
        let mut grouped: Vec<&str> = help::GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let mut all: Vec<&str> =
            tree.get_subcommands().filter(|c| !c.is_hide_set()).map(|command| command.get_name()).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn common_flags_are_flags() {
        let tree = command_with_flags();
        for (commands, flags) in help::COMMON {
            assert!(commands.iter().all(|name| tree.find_subcommand(name).is_some()), "{commands:?}");
            for flag in flags {
                assert!(tree.get_arguments().any(|arg| arg.get_long() == Some(flag)), "{flag}");
            }
        }
    }
}
