//! Completion: `haul __complete SHELL …`, which the shells' scripts call (`haul completion`). Gives what may stand at the end of a
//! command line: commands, flags, remotes, paths on remotes and on this machine, ids of jobs. It never asks, and gives up soon.

mod line;

use crate::{
    cli::{self, Parsed},
    colour::Choice,
    context::Context,
    environment::home,
};
use clap::{Arg, ArgAction, Command};
use futures::StreamExt as _;
use haul_core::Listed;
use haul_remotes::{
    config::{Config, Password},
    registry,
};
use haul_store::ListRequest;
use line::PartialLine;
use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

/// The hidden command's name.
pub const NAME: &str = "__complete";

/// A person waits for the key to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than a person reads; a shell asks before it shows as many.
const MOST: usize = 1000;

/// Prints candidates, one a line. Arguments: the shell; of bash the line up to the cursor and what breaks its words, of the others
/// the words, whose last is the one to complete. Whatever goes wrong gives no candidates: there is nobody to tell.
pub fn main(args: &[OsString]) -> u8 {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let typed = match args.as_slice() {
        [shell, line, breaks] if shell == "bash" => PartialLine::of_bash(line, breaks),
        [_, words @ ..] if !words.is_empty() => PartialLine::of_words(words),
        _ => return crate::error::code::USAGE,
    };
    let mut found = candidates(&typed);
    found.retain(|candidate| candidate.starts_with(&typed.current));
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    // A shell that went away needs none.
    let _ = crate::print::text(&found.iter().map(|candidate| typed.shown(candidate) + "\n").collect::<String>());
    crate::error::code::OK
}

/// Kind of the word to complete.
enum WordKind<'a> {
    /// The value of a flag, after what stands before it in the same word.
    Value(&'a Arg, &'a str),
    Flag,
    Command,
    Positional(Option<&'a Arg>),
}

fn candidates(typed: &PartialLine) -> Vec<String> {
    let mut tree = cli::command_with_flags();
    tree.build();
    let (command, wanted) = look(&tree, typed);
    match wanted {
        WordKind::Value(arg, before) => {
            let found = values(arg, &typed.current[before.len()..], typed);
            found.into_iter().map(|value| format!("{before}{value}")).collect()
        }
        WordKind::Flag => {
            let all = command.get_arguments().chain(tree.get_arguments());
            all.filter_map(Arg::get_long).map(|long| format!("--{long}")).collect()
        }
        WordKind::Command => names(command),
        WordKind::Positional(None) => Vec::new(),
        WordKind::Positional(Some(arg)) => values(arg, &typed.current, typed),
    }
}

fn names(command: &Command) -> Vec<String> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned()).collect()
}

/// Which command the words before name, and what the word to complete is there.
fn look<'t>(tree: &'t Command, typed: &'t PartialLine) -> (&'t Command, WordKind<'t>) {
    let (mut command, mut place, mut only_words) = (tree, 0, false);
    let mut words = typed.before.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" && !only_words {
            only_words = true;
        } else if word.starts_with('-') && word.len() > 1 && !only_words {
            if let Some(flag) = waits(tree, command, word)
                && words.next().is_none()
            {
                return (command, WordKind::Value(flag, ""));
            }
        } else if let Some(sub) = command.find_subcommand(word).filter(|_| place == 0 && !only_words) {
            command = sub;
        } else {
            place += 1;
        }
    }
    let current = typed.current.as_str();
    if current.starts_with('-') && !only_words {
        let valued = current.split_once('=').and_then(|(name, _)| {
            let flag = flag(tree, command, name.strip_prefix("--")?)?;
            Some(WordKind::Value(flag, &current[..=name.len()]))
        });
        return (command, valued.unwrap_or(WordKind::Flag));
    }
    if place == 0 && command.has_subcommands() {
        return (command, WordKind::Command);
    }
    let mut positionals = command.get_positionals();
    let last = command
        .get_positionals()
        .last()
        .filter(|arg| arg.is_trailing_var_arg_set() || matches!(arg.get_action(), ArgAction::Append));
    (command, WordKind::Positional(positionals.nth(place).or(last)))
}

fn flag<'t>(tree: &'t Command, command: &'t Command, long: &str) -> Option<&'t Arg> {
    command.get_arguments().chain(tree.get_arguments()).find(|arg| arg.get_long() == Some(long))
}

/// The flag of a word whose value is the next word.
fn waits<'t>(tree: &'t Command, command: &'t Command, word: &str) -> Option<&'t Arg> {
    let found = match word.strip_prefix("--") {
        Some(long) => flag(tree, command, long)?,
        None => {
            let letter = word.chars().last()?;
            let mut all = command.get_arguments().chain(tree.get_arguments());
            all.find(|arg| arg.get_short() == Some(letter))?
        }
    };
    let takes = matches!(found.get_action(), ArgAction::Set | ArgAction::Append);
    let must = found.get_num_args().is_none_or(|n| n.min_values() > 0);
    (takes && must).then_some(found)
}

/// Candidates for an argument, by its possible values, else by its name.
fn values(arg: &Arg, current: &str, typed: &PartialLine) -> Vec<String> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return possible.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned()).collect();
    }
    let what = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match what {
        "JOB" => jobs(typed),
        "REMOTE" => remotes(typed),
        "REMOTE:" => remotes(typed).into_iter().map(|name| name + ":").collect(),
        "KIND" => registry::kinds().iter().map(|kind| kind.name.to_owned()).collect(),
        "TYPE" => {
            let logged_in = registry::kinds().iter().filter(|kind| registry::login(kind.name).is_some());
            logged_in.map(|kind| kind.name.to_owned()).collect()
        }
        "COMMAND" => names(&cli::command()),
        "FILE" | "DIR" => local(current),
        "PATH" | "ARGUMENTS" => paths(current, typed),
        _ if what.ends_with(":PATH") => paths(current, typed),
        _ => Vec::new(),
    }
}

fn paths(current: &str, typed: &PartialLine) -> Vec<String> {
    if current.split('/').next().is_some_and(|first| first.contains(':')) {
        return on_remote(current, typed);
    }
    let mut found = local(current);
    if !current.contains('/') {
        found.extend(remotes(typed).into_iter().map(|name| name + ":"));
    }
    found
}

/// Entries of the local folder that the word is in.
fn local(current: &str) -> Vec<String> {
    let at = current.rfind('/').map_or(0, |at| at + 1);
    let (folder, begun) = current.split_at(at);
    let place = match (folder.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ if folder.is_empty() => PathBuf::from("."),
        _ => PathBuf::from(folder),
    };
    let Ok(entries) = std::fs::read_dir(&place) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let hidden = name.starts_with('.') && !begun.starts_with('.');
        let slash = if entry.path().is_dir() { "/" } else { "" };
        (!hidden && name.starts_with(begun)).then(|| format!("{folder}{name}{slash}"))
    });
    named.take(MOST).collect()
}

/// The surroundings of a command that was typed with the same configuration; nobody is asked for anything.
fn context(typed: &PartialLine) -> Option<Context> {
    let mut line: Vec<OsString> = ["haul", "--ask-password=false", "--low-level-retries=1"].map(OsString::from).into();
    for flag in ["--config", "--password-command", "--state-dir"] {
        let apart = typed.before.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1].as_str());
        let joined = typed.before.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
        line.extend(apart.or(joined).map(|value| format!("{flag}={value}").into()));
    }
    line.push("version".into());
    let Ok(Parsed::Run(given)) = cli::parse(line, Choice::Never) else { return None };
    let context = Context::new(given.cli.flags, given.backends, given.line, Arc::new(Choice::Never.screen())).ok()?;
    context.session.ask_nobody();
    Some(context)
}

fn remotes(typed: &PartialLine) -> Vec<String> {
    let Some(context) = context(typed) else { return Vec::new() };
    let command = context.flags.config.password_command.clone();
    let password = Password { command, ..Password::from_environment(context.session.environment()) };
    let config = Config::load(context.session.places(), password);
    config.map(|config| config.remotes().into_iter().map(str::to_owned).collect()).unwrap_or_default()
}

fn jobs(typed: &PartialLine) -> Vec<String> {
    let folder = context(typed).and_then(|context| context.journals());
    let found = folder.and_then(|folder| haul::journal::unfinished(&folder).ok());
    found.map(|(jobs, _)| jobs.iter().map(|job| job.id.to_string()).collect()).unwrap_or_default()
}

/// Entries of the remote folder that the word is in: buckets too.
fn on_remote(current: &str, typed: &PartialLine) -> Vec<String> {
    let at = current.rfind(['/', ':']).map_or(0, |at| at + 1);
    let (folder, begun) = current.split_at(at);
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() else {
        return Vec::new();
    };
    let found = runtime.block_on(async {
        let listing = async {
            let store = context(typed)?.open(folder.as_ref()).ok()?;
            let request =
                ListRequest { prefix: begun.as_bytes().to_vec(), limit: Some(MOST), ..ListRequest::default() };
            let mut listing = store.list(request);
            let mut names = Vec::new();
            while let Some(step @ (Listed::Batch(_) | Listed::Vanished(_))) = listing.next().await {
                let Listed::Batch(entries) = step else { continue };
                for entry in entries {
                    // A directory's key ends in a slash.
                    names.extend(std::str::from_utf8(entry.key.stored()).map(|name| format!("{folder}{name}")));
                }
            }
            Some(names)
        };
        tokio::time::timeout(PATIENCE, listing).await.ok().flatten().unwrap_or_default()
    });
    runtime.shutdown_background();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let typed = PartialLine::of_bash(line, " \t\n\"'><=;|&(:");
        let mut found = candidates(&typed);
        found.retain(|candidate| candidate.starts_with(&typed.current));
        found
    }

    #[test]
    fn commands_come_where_a_command_is_missing() {
        assert_eq!(of("haul snap"), ["snapshot"]);
        assert_eq!(of("haul -P --transfers 3 deletef"), ["deletefile"]);
        assert_eq!(of("haul snapshot p"), ["push", "pull"]);
        assert!(of("haul snapshot ").iter().all(|found| !found.starts_with('-')), "flags come when they are begun");
        assert!(of("haul ").iter().all(|found| found != NAME));
        assert_eq!(of("haul help snapsh"), ["snapshot"]);
    }

    #[test]
    fn flags_come_after_a_hyphen_with_their_values() {
        assert!(of("haul ls --max-d").contains(&"--max-depth".to_owned()));
        assert_eq!(of("haul bench --rep"), ["--report"]);
        assert_eq!(of("haul copy --cutoff-mode h"), ["hard"]);
        assert_eq!(of("haul copy --cutoff-mode=h"), ["--cutoff-mode=hard"]);
        assert_eq!(of("haul completion z"), ["zsh"]);
        assert_eq!(of("haul config create x dri"), ["drive"]);
        assert!(of("haul authorize s").is_empty() && of("haul authorize b") == ["box"]);
        assert!(of("haul copy -- --max-d").is_empty());
    }
}
