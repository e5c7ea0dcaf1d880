//! From arguments to exit code: sets up log, signals and display, runs the command.

use crate::{
    cli::{Given, Parsed, parse},
    commands::{self, Command},
    context::Context,
    error::{self, Outcome, code},
    flags, log, machine,
    screen::Screen,
    signals,
};
use anyhow::Result;
use std::{ffi::OsString, sync::Arc};

/// Runs haul and gives its exit code.
pub fn main(argv: Vec<OsString>) -> u8 {
    machine::allow_open_files();
    let screen = Arc::new(Screen::new());
    let code = match parse(argv) {
        Ok(Parsed::Run(given)) => run(*given, &screen).unwrap_or_else(|e| tell(&screen, &e)),
        Ok(Parsed::Said(code)) => code,
        Err(e) => tell(&screen, &e.into()),
    };
    screen.finish();
    code
}

fn run(given: Given, screen: &Arc<Screen>) -> Result<u8> {
    let resumes = matches!(given.cli.command, Command::Resume(_));
    let Given { cli, backends, line } = match &given.cli.command {
        Command::Resume(args) => commands::resume::recorded(args, &given)?,
        _ => given,
    };
    log::start(&flags::log::settings(&cli.flags)?, screen)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let mut context = Context::new(cli.flags, backends, line, screen.clone())?;
        context.resumes = resumes;
        signals::listen(context.cancel.clone(), cli.command.finishes_itself());
        let outcome = context.until_stopped(cli.command.finishes_itself(), cli.command.run(&context)).await;
        context.keep_hashes();
        finish(&context, outcome)
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
    Ok(match outcome? {
        Outcome::Done => code::OK,
        Outcome::Exit(code) => code,
        Outcome::Job(report) => error::report_code(&report, no_transfer),
    })
}

/// Says what went wrong, in one line.
fn tell(screen: &Screen, error: &anyhow::Error) -> u8 {
    let verdict = error::verdict(error);
    screen.tell(&verdict.line);
    verdict.code
}
