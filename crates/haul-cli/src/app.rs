//! From arguments to exit code: sets up log, signals and display, runs the command.

use crate::{
    cli::{Invocation, Parsed, parse},
    colour,
    commands::{self, Command},
    complete,
    context::Context,
    environment::env,
    error::{self, CommandResult, ExitMessage, code},
    flags, log, machine, signals,
};
use anyhow::Result;
use haul::Cancel;
use haul_remotes::config::{Config, Password};
use haul_terminal::Screen;
use std::{ffi::OsString, path::Path, sync::Arc, time::Duration};

/// How long the end of haul waits for a token that is being renewed.
const TOKENS: Duration = Duration::from_secs(5);

/// Runs haul and gives its exit code.
pub fn main(argv: Vec<OsString>) -> u8 {
    if argv.get(1).is_some_and(|word| word == complete::NAME) {
        return complete::main(&argv[2..]);
    }
    machine::allow_open_files();
    let colour = colour::choice(&argv, &env);
    let screen = Arc::new(colour.screen());
    let code = match parse(argv, colour) {
        Ok(Parsed::Run(given)) => run(*given, &screen).unwrap_or_else(|e| tell(&screen, &error::verdict(&e))),
        Ok(Parsed::Said(code)) => code,
        Err(e) => tell(&screen, &error::verdict(&e.into())),
    };
    screen.finish();
    code
}

/// Hint for a missing path that is the name of a remote without its colon. Prompts for no password.
fn remote_without_colon(context: &Context) -> Option<String> {
    let config = Config::load(context.session.places(), Password::default()).ok()?;
    let known = config.remotes();
    let mut words = context.line.iter().skip(1).filter_map(|word| word.to_str());
    let name = words.find(|word| known.contains(word) && !Path::new(word).exists())?;
    Some(format!("{name} is also a remote: for that, type {name}:"))
}

/// The threads that all work is done on. Where the system gives too few, the library panics, and waits for those that it has for ever.
#[expect(clippy::disallowed_methods, reason = "main would wait for ever, too")]
fn begin() -> std::io::Result<tokio::runtime::Runtime> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or("a thread can't be started");
        eprintln!(
            "haul: can't start: {why}: raise the limit of processes (ulimit -u, or that of the container or job)"
        );
        std::process::exit(1);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    std::panic::set_hook(hook);
    runtime
}

fn run(given: Invocation, screen: &Arc<Screen>) -> Result<u8> {
    let resumes = matches!(given.cli.command, Command::Resume(_));
    let Invocation { cli, backends, line } = match &given.cli.command {
        Command::Resume(args) => commands::resume::recorded(args, &given)?,
        _ => given,
    };
    log::start(&flags::log::settings(&cli.flags)?, screen)?;
    if let Some(notice) = flags::ignored::notice(&cli.flags.ignored) {
        tracing::warn!("{notice}");
    }
    let runtime = begin()?;
    let code = runtime.block_on(async {
        let mut context = Context::new(cli.flags, backends, line, screen.clone())?;
        context.resumes = resumes;
        if cli.command.stops_in_its_own_time() {
            context.asked_to_stop = Cancel::default();
            // A worker runs on while nobody looks.
            context.session.ask_nobody();
        }
        signals::listen(context.asked_to_stop.clone(), cli.command.finishes_itself());
        let outcome = context.until_stopped(cli.command.finishes_itself(), cli.command.run(&context)).await;
        context.keep_hashes();
        // A token that is being renewed is lost for good if it isn't written down: the one before it is worth nothing any more.
        context.session.tokens_are_kept(TOKENS).await;
        let code = finish(&context, outcome).unwrap_or_else(|error| {
            tell(screen, &error::verdict_with(&error, remote_without_colon(&context).as_deref()))
        });
        Ok(code)
    });
    // A blocking read of a terminal or a pipe must not keep a finished program alive.
    runtime.shutdown_background();
    code
}

fn finish(context: &Context, outcome: Result<CommandResult>) -> Result<u8> {
    let no_transfer = context.flags.config.error_on_no_transfer;
    let report = match &outcome {
        Ok(CommandResult::Job(report)) => Some(report.as_ref()),
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
        CommandResult::Done => code::OK,
        CommandResult::Exit(code) => code,
        CommandResult::Job(report) => error::report_code(&report, no_transfer),
    };
    if code == code::DIR_NOT_FOUND
        && let Some(hint) = remote_without_colon(context)
    {
        tracing::warn!("{hint}");
    }
    Ok(code)
}

/// Says what went wrong, in one line.
fn tell(screen: &Screen, verdict: &ExitMessage) -> u8 {
    screen.tell(&verdict.line);
    verdict.code
}
