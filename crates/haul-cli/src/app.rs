//! From arguments to exit code: reads the command line, sets up log, signals and display, runs the command.

use crate::{
    args,
    colour::{self, Choice},
    commands::{self, Command},
    complete,
    config::{Config, Password},
    context::Context,
    error::{self, Outcome, Usage, Verdict, code},
    flags::{self, Flags},
    log, machine,
    screen::Screen,
    signals,
};
use anyhow::Result;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};
use haul_store::{
    OptionKind, OptionSpec,
    registry::{self, StoreKind},
};
use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc};

/// Moves data between clouds, clusters and disks.
#[derive(Parser)]
#[command(
    name = "haul",
    bin_name = "haul",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "haul help COMMAND explains a command. haul help flags lists the flags that work with any command."
)]
pub struct Cli {
    /// Flags that stand before or after any command.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of stores as given by flags: kind, then option, then value.
pub type BackendFlags = BTreeMap<String, BTreeMap<String, String>>;

/// The commands and all flags, shown in the help.
pub fn command_with_flags() -> clap::Command {
    let flags = registry::kinds().iter().flat_map(|kind| kind.options.iter().map(move |option| flag(kind, option)));
    commands::help::dress(Cli::command().args(flags))
}

/// The commands; the flags work but only `haul help flags` shows them.
pub fn command() -> clap::Command {
    command_with_flags().mut_args(|arg| arg.hide(true))
}

/// `--s3-access-key-id` for the option `access_key_id` of `s3`.
pub fn flag_name(kind: &StoreKind, option: &OptionSpec) -> String {
    format!("{}-{}", kind.name, option.name.replace('_', "-"))
}

fn flag(kind: &StoreKind, option: &OptionSpec) -> clap::Arg {
    let name = flag_name(kind, option);
    let first = option.help.lines().next().unwrap_or_default().trim_end_matches('.').to_string();
    let heading = format!("Stores of type {}", kind.name);
    let arg = clap::Arg::new(name.clone()).long(name).help(first).help_heading(heading);
    match option.kind {
        OptionKind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL"),
        OptionKind::Int => arg.value_name("N").allow_hyphen_values(true),
        OptionKind::Size => arg.value_name("SIZE").allow_hyphen_values(true),
        OptionKind::Duration => arg.value_name("DURATION").allow_hyphen_values(true),
        OptionKind::Remote => arg.value_name("REMOTE:PATH").allow_hyphen_values(true),
        OptionKind::Text | OptionKind::Obscured => arg.value_name("TEXT").allow_hyphen_values(true),
    }
}

fn backend_flags(matches: &ArgMatches) -> BackendFlags {
    let mut all = BackendFlags::new();
    for kind in registry::kinds() {
        for option in kind.options {
            let value = matches.try_get_one::<String>(&flag_name(kind, option));
            if let Ok(Some(value)) = value {
                all.entry(kind.name.into()).or_default().insert(option.name.into(), value.clone());
            }
        }
    }
    all
}

/// An environment variable; empty counts as unset.
#[allow(clippy::disallowed_methods)] // the one place that reads it
pub fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// Runs haul and gives its exit code.
pub fn main(argv: Vec<OsString>) -> u8 {
    if argv.get(1).is_some_and(|word| word == complete::NAME) {
        return complete::main(&argv[2..]);
    }
    machine::allow_open_files();
    let colour = colour::choice(&argv, &env);
    let screen = Arc::new(Screen::new(colour));
    let code = match parse(argv, colour) {
        Ok(Parsed::Run(given)) => run(*given, &screen).unwrap_or_else(|e| tell(&screen, &error::verdict(&e))),
        Ok(Parsed::Said(code)) => code,
        Err(e) => tell(&screen, &error::verdict(&e.into())),
    };
    screen.finish();
    code
}

/// A command line that was understood.
pub struct Given {
    /// Command and flags.
    pub cli: Cli,
    /// Options of stores.
    pub backends: BackendFlags,
    /// The line in order: flags that belong to no command, each one word, then the command with its own.
    pub line: Vec<OsString>,
}

/// What a command line comes to.
pub enum Parsed {
    /// A command to run.
    Run(Box<Given>),
    /// Help or version was asked for and shown.
    Said(u8),
}

/// Reads a command line, whose first word is the program's name; what is shown of help has colours as `colour` says.
pub fn parse(argv: Vec<OsString>, colour: Choice) -> Result<Parsed, Usage> {
    let mut tree = command();
    tree.build();
    // The environment's backend flags have their own place in the precedence, see `remote`.
    let backend = |name: &str| registry::kinds().iter().any(|k| name.contains(&format!("_{}_", k.name.to_uppercase())));
    let line = args::arrange(&tree, argv, &|name| if backend(name) { None } else { env(name) })?;
    let parsed = command().color(colour.clap()).try_get_matches_from(&line);
    let cli = parsed.and_then(|matches| Cli::from_arg_matches(&matches).map(|cli| (cli, backend_flags(&matches))));
    match cli {
        Ok((mut cli, backends)) => {
            cli.flags.meta.links |= cli.command.keeps_links() && !cli.flags.meta.copy_links;
            Ok(Parsed::Run(Box::new(Given { cli, backends, line })))
        }
        Err(e) if e.use_stderr() && e.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Usage(first_paragraph(&e.render().to_string())))
        }
        Err(e) => {
            // Nothing is left to do when the help can't be printed.
            let _ = e.print();
            Ok(Parsed::Said(if e.use_stderr() { code::USAGE } else { code::OK }))
        }
    }
}

/// What clap says, without its `error:` and usage, on one line.
fn first_paragraph(text: &str) -> String {
    let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // The standard library's words for a number that can't be read.
    line.replace("invalid digit found in string", "it is not a whole number")
        .replace("invalid float literal", "it is not a number")
}

/// What to type if a path that isn't there is the name of a remote without its colon. Nobody is asked for a password for that.
fn remote_without_colon(context: &Context) -> Option<String> {
    let config = Config::load(&context.places(), Password::default()).ok()?;
    let known = config.remotes();
    let mut words = context.line.iter().skip(1).filter_map(|word| word.to_str());
    let name = words.find(|word| known.contains(word) && !Path::new(word).exists())?;
    Some(format!("{name} is also a remote: for that, type {name}:"))
}

fn run(given: Given, screen: &Arc<Screen>) -> Result<u8> {
    let resumes = matches!(given.cli.command, Command::Resume(_));
    let Given { cli, backends, line } = match &given.cli.command {
        Command::Resume(args) => commands::resume::recorded(args, &given)?,
        _ => given,
    };
    log::start(&flags::log::settings(&cli.flags)?, screen)?;
    if let Some(notice) = flags::ignored::notice(&cli.flags.ignored) {
        tracing::warn!("{notice}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let mut context = Context::new(cli.flags, backends, line, screen.clone())?;
        context.resumes = resumes;
        signals::listen(context.cancel.clone(), cli.command.finishes_itself());
        let outcome = context.until_stopped(cli.command.finishes_itself(), cli.command.run(&context)).await;
        context.keep_hashes();
        let code = finish(&context, outcome).unwrap_or_else(|error| {
            tell(screen, &error::verdict_with(&error, remote_without_colon(&context).as_deref()))
        });
        Ok(code)
    });
    // A blocking read of a terminal or a pipe must not keep a finished program alive.
    runtime.shutdown_background();
    code
}

fn finish(context: &Context, outcome: Result<Outcome>) -> Result<u8> {
    let no_transfer = context.flags.config.error_on_no_transfer;
    let report = match &outcome {
        Ok(Outcome::Job(report)) => Some(report.as_ref()),
        _ => None,
    };
    context.progress.finish(report);
    if let Some(why) = report.and_then(|r| error::why_stopped(r, no_transfer)) {
        tracing::warn!("{why}");
    }
    if let Some(left) = report.and_then(error::half_sent) {
        tracing::warn!("{left}");
    }
    let code = match outcome? {
        Outcome::Done => code::OK,
        Outcome::Exit(code) => code,
        Outcome::Job(report) => error::report_code(&report, no_transfer),
    };
    if code == code::DIR_NOT_FOUND
        && let Some(hint) = remote_without_colon(context)
    {
        tracing::warn!("{hint}");
    }
    Ok(code)
}

/// Says what went wrong, in one line.
fn tell(screen: &Screen, verdict: &Verdict) -> u8 {
    screen.tell(&verdict.line);
    verdict.code
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let error = command().try_get_matches_from(["haul", "--transfers=x", "version"]).unwrap_err();
        assert_eq!(
            first_paragraph(&error.render().to_string()),
            "invalid value 'x' for '--transfers <N>': it is not a whole number"
        );
    }
}
