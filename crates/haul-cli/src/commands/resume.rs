//! `resume`: runs the command of a job that was cut short again.

use crate::{
    cli::{Invocation, Parsed, parse},
    colour::Choice,
    environment::environment,
    error::{CommandResult, usage},
    journal,
};
use anyhow::{Context as _, Result, anyhow};
use haul::journal::{JobId, JobInfo, UnfinishedJob, unfinished};
use haul_remotes::config::paths;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

/// Resume an interrupted job
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Id of the job, or a prefix of it: haul jobs lists the ids
    #[arg(value_name = "JOB")]
    job: String,
}

/// The command line of the job, with the flags of this one added; the process is then in the folder in which it was given.
pub fn recorded(args: &Args, given: &Invocation) -> Result<Invocation> {
    let state = given.cli.flags.config.state_dir.as_ref();
    let folder = paths::journals(state, &environment());
    let folder = folder.ok_or_else(|| usage("no directory for journals: set one with --state-dir"))?;
    let (jobs, _) = unfinished(&folder)?;
    let UnfinishedJob { id, job, running, .. } = find(&jobs, &args.job)?;
    if *running {
        return Err(anyhow!("job {id} is running now"));
    }
    let more = given.line.iter().skip(1).take_while(|word| word.as_bytes().starts_with(b"--"));
    let mut more: Vec<OsString> = more.cloned().collect();
    // The journal was found here, whatever folder and variables the command has.
    if let Some(state) = folder.parent() {
        more.push([OsStr::new("--state-dir="), state.as_os_str()].into_iter().collect());
    }
    again(id, job, more)
}

/// The job whose id is this, or begins with it.
pub fn find<'j>(jobs: &'j [UnfinishedJob], name: &str) -> Result<&'j UnfinishedJob> {
    let mut found = jobs.iter().filter(|job| !name.is_empty() && job.id.to_string().starts_with(name));
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job),
        (Some(_), Some(_)) => Err(usage(format!("several job ids begin with {name}: type more of it"))),
        (None, _) => Err(usage(format!("no unfinished job {name} (see haul jobs)"))),
    }
}

/// A job's command line, and the process in its folder. `more` are flags that count before its own.
///
/// Errors: the line held secrets, so that it isn't whole; the folder is gone; this haul doesn't understand the line.
pub fn again(id: &JobId, job: &JobInfo, more: Vec<OsString>) -> Result<Invocation> {
    if !job.complete {
        let line = journal::shown(&job.argv);
        return Err(anyhow!(
            "job {id} was given secrets or standard input, which aren't kept: run it again as you did ({line})"
        ));
    }
    let folder = OsStr::from_bytes(&job.folder);
    std::env::set_current_dir(folder).with_context(|| format!("job {id}: {}", folder.display()))?;
    let own = journal::words(&job.argv).collect::<Vec<_>>();
    let flags = own.iter().take_while(|word| word.as_bytes().starts_with(b"--")).count();
    let (own_flags, command) = own.split_at(flags);
    let line = [&[OsString::from("haul")], own_flags, &more, command].concat();
    match parse(line, Choice::Auto) {
        Ok(Parsed::Run(given)) if given.cli.command.is_job() => Ok(*given),
        Ok(_) => Err(anyhow!("job {id}: its journal holds no job's command")),
        Err(e) => Err(anyhow!("job {id}: {}", e.0)),
    }
}

/// Never reached by a line that a person typed: it was put in place of it before.
pub fn run(args: Args) -> Result<CommandResult> {
    Err(anyhow!("job {}: its command is resume itself", args.job))
}
