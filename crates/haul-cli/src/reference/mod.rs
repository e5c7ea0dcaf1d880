//! The reference (`docs/reference.md`) and the man pages, made from the tables that the parser and the help use. Pure: what is
//! written where is `haul generate`'s.

pub mod man;
pub mod markdown;

use clap::{Arg, ArgAction, Command};
use haul_terminal::table::{OptionRow, TITLES};

/// All commands of `tree` with all their flags shown, those of `rsync` and `dcp` too, which clap doesn't parse.
pub fn tree(tree: Command) -> Command {
    let mut tree = tree
        .override_usage("haul [FLAGS] COMMAND [ARGUMENTS]")
        .mut_subcommand("rsync", |shown| foreign(&shown, args(haul_rsync::option_table::shown(), true)))
        .mut_subcommand("dcp", |shown| foreign(&shown, args(haul_dcp::OPTIONS.iter(), false)));
    tree.build();
    tree
}

/// A command that has a parser of its own, with the options of that.
fn foreign(shown: &Command, options: Vec<Arg>) -> Command {
    let name = shown.get_name().to_owned();
    let command = Command::new(name.clone())
        .override_usage(format!("haul {name} [OPTION]... SRC... DEST"))
        .disable_help_flag(true)
        .args(options);
    let command = shown.get_about().map_or(command.clone(), |about| command.about(about.clone()));
    shown.get_long_about().map_or(command.clone(), |about| command.long_about(about.clone()))
}

/// The options of a table as clap has them; `equals` for values that come after `=` alone.
fn args(table: impl Iterator<Item = &'static OptionRow>, equals: bool) -> Vec<Arg> {
    let table: Vec<&OptionRow> = table.collect();
    let of_title =
        |(here, title)| table.iter().filter(move |entry| entry.here == here).map(move |entry| (*entry, title));
    TITLES.into_iter().flat_map(of_title).map(|(entry, title)| arg(entry, title, equals)).collect()
}

fn arg(entry: &OptionRow, title: &'static str, equals: bool) -> Arg {
    let name = entry.short.filter(|_| entry.long.is_empty()).map_or(entry.long.to_owned(), |short| format!("-{short}"));
    let arg = Arg::new(name).help(entry.help).help_heading(title);
    let arg = entry.short.into_iter().fold(arg, Arg::short);
    let arg = if entry.long.is_empty() { arg } else { arg.long(entry.long) };
    match entry.value {
        Some(value) => arg.value_name(value).require_equals(equals),
        None => arg.action(ArgAction::SetTrue),
    }
}

/// `haul copy [OPTIONS] <SOURCE:PATH> <DEST:PATH>`.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim().trim_start_matches("Usage: ").to_owned()
}

/// The commands below one, hidden ones left out.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// True for a flag or argument that has a value.
fn takes_value(arg: &Arg) -> bool {
    arg.is_positional() || matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The flags of a command by heading, in their order; the first heading may be empty. Help is with every command.
fn flags(command: &Command) -> Vec<(String, Vec<&Arg>)> {
    let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
    let shown = |arg: &&Arg| !arg.is_positional() && !arg.is_hide_set() && arg.get_id() != "help";
    for arg in command.get_arguments().filter(shown) {
        let heading = arg.get_help_heading().unwrap_or_default();
        match groups.iter_mut().find(|(known, _)| known == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading.to_owned(), vec![arg])),
        }
    }
    groups.sort_by_key(|(heading, _)| !heading.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_with_flags;

    #[test]
    fn the_tree_holds_together() {
        tree(command_with_flags()).debug_assert();
    }

    #[test]
    fn options_of_rsync_and_dcp_are_shown() {
        let tree = tree(command_with_flags());
        for (command, option) in [("rsync", "link-dest"), ("dcp", "chunksize")] {
            let command = tree.find_subcommand(command).unwrap();
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(option)), "{option}");
        }
    }
}
