//! `haul help`, `haul help COMMAND`, `haul help flags`, `environment`, `exit-codes`.

use crate::{
    args::unknown,
    cli,
    context::Context,
    environment::VARIABLES,
    error::{CommandResult, code, usage},
    print,
};
use anyhow::Result;
use clap::{
    Arg, Command, Id,
    builder::{Resettable, StyledStr},
};
use std::collections::BTreeMap;

/// On what.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A command or a flag; or flags and a word to search for; or environment; or exit-codes
    #[arg(value_name = "COMMAND")]
    topic: Vec<String>,
}

/// Prints the help.
pub async fn run(args: Args, context: &Context) -> Result<CommandResult> {
    let words: Vec<&str> = args.topic.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        ["flags"] => global_flags(),
        ["flags", word] => flags(word).ok_or_else(|| usage(format!("no flag matches {word:?}")))?,
        ["environment"] => listed(VARIABLES.iter().map(|(name, text)| ((*name).to_owned(), *text))),
        ["exit-codes"] => listed(code::MEANINGS.iter().map(|(code, text)| (code.to_string(), *text))),
        ["flags", ..] => return Err(usage("haul help flags takes one word")),
        [word] if is_flag(word) => flags(word).expect("a flag has its name"),
        path => of(path)?,
    };
    print::text(&if context.screen.colours_output() { text.ansi().to_string() } else { text.to_string() })?;
    Ok(CommandResult::Done)
}

fn of(path: &[&str]) -> Result<StyledStr> {
    let mut tree = cli::command();
    tree.build();
    let mut command = &mut tree;
    for name in path {
        if command.find_subcommand(name).is_none() {
            return Err(unknown(command, name).into());
        }
        command = command.find_subcommand_mut(name).expect("just found");
    }
    Ok(command.render_long_help())
}

/// True for what is the name of a flag and no command's.
fn is_flag(word: &str) -> bool {
    let tree = cli::command_with_flags();
    tree.find_subcommand(word).is_none() && tree.get_arguments().any(|arg| arg.get_long() == Some(word))
}

/// Two columns.
fn listed<'a>(rows: impl Iterator<Item = (String, &'a str)>) -> StyledStr {
    let rows: Vec<_> = rows.collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, text)| format!("{name:<width$}  {text}\n")).collect::<String>().into()
}

fn global_flags() -> StyledStr {
    rendered(cli::command_with_flags().get_arguments().cloned().collect())
}

/// The flags that hold `word` in name, help or group: those of all commands in their groups, then those of single commands.
fn flags(word: &str) -> Option<StyledStr> {
    let lower = word.to_lowercase();
    let holds = |arg: &Arg| {
        let help = arg.get_help().map(|h| h.to_string()).unwrap_or_default();
        let heading = arg.get_help_heading().unwrap_or_default();
        [arg.get_long().unwrap_or_default(), &help, heading].iter().any(|t| t.to_lowercase().contains(&lower))
    };
    let tree = cli::command_with_flags();
    let found: Vec<Arg> = tree.get_arguments().filter(|arg| holds(arg)).cloned().collect();
    // One flag of several commands is shown once, with their names.
    let mut own: BTreeMap<(String, String), (Arg, Vec<String>)> = BTreeMap::new();
    own_flags(&tree, "", &mut |command, arg| {
        if holds(arg) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let key = (arg.get_long().unwrap_or_default().to_owned(), help);
            own.entry(key).or_insert_with(|| (arg.clone(), Vec::new())).1.push(command.to_owned());
        }
    });
    // Two commands may each have a flag of the same name, so they are put together page by page.
    let mut pages: BTreeMap<String, Vec<Arg>> = BTreeMap::new();
    for (arg, commands) in own.into_values() {
        pages.entry(format!("Only with {}", commands.join(", "))).or_default().push(arg);
    }
    let mut shown = Vec::from_iter((!found.is_empty()).then(|| rendered(found)));
    shown.extend(pages.into_iter().map(|(title, args)| {
        rendered(args.into_iter().map(|arg| arg.hide(false).help_heading(title.clone())).collect())
    }));
    let text = shown.iter().map(|page| page.ansi().to_string()).collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then(|| text.into())
}

fn own_flags(command: &Command, path: &str, each: &mut impl FnMut(&str, &Arg)) {
    for sub in command.get_subcommands() {
        let name = format!("{path}{}", sub.get_name());
        for arg in sub.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != "help")) {
            each(&name, arg);
        }
        own_flags(sub, &format!("{name} "), each);
    }
}

fn rendered(flags: Vec<Arg>) -> StyledStr {
    // Flags that conflict with this one need not be among those that are shown.
    let alone = |flag: Arg| flag.conflicts_with(Resettable::<Id>::Reset).requires(Resettable::<Id>::Reset);
    let shown = Command::new("flags").disable_help_flag(true).help_template("{all-args}\n");
    shown.args(flags.into_iter().map(alone)).render_help()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_finds_flags_of_single_commands_too() {
        let text = flags("xattrs").unwrap().to_string();
        assert!(text.starts_with("Only with copy, copyto, fleet create, move, moveto, sync:\n"), "{text}");
        assert!(text.contains("-X, --xattrs"), "{text}");
        assert!(flags("bwlimit").unwrap().to_string().starts_with("Network:\n"));
        assert!(flags("no-such-word").is_none());
    }
}
