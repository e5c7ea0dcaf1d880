//! `haul-mpi`: dcp, dsync, dcmp and drm over many nodes. MPI starts the ranks and carries words between them (one that is alone
//! needs none); the bytes go through
//! haul's store for file systems, of which each rank has its own. Rank 0 gives out the work (`coordinator`), and takes part.

mod args;
mod contents;
mod coordinator;
mod crew;
mod dirs;
mod files;
mod generate;
mod guard;
mod input;
mod journal;
mod large;
mod lead;
mod link_dest;
mod links;
mod node;
mod overlap;
mod pieces;
mod queue;
mod rank;
mod refused;
mod remove;
mod shared;
mod show;
#[cfg(test)]
mod simulated;
mod tree;
mod wire;
mod work;

use clap::Parser as _;
use mpi::{Threading, topology::Communicator as _};
use std::{process::ExitCode, time::Duration};

/// Until all ranks are there: thousands of them take a while.
const TOGETHER: Duration = Duration::from_secs(300);
/// Until MPI has ended, which all ranks do at one time.
pub(crate) const END: Duration = Duration::from_secs(30);

#[allow(clippy::disallowed_methods)] // Variables of launchers.
fn main() -> ExitCode {
    let env = |name: &str| std::env::var_os(name);
    let typed = match args::Cli::try_parse() {
        Ok(typed) => typed,
        Err(error) => {
            let command = std::env::args_os().nth(1).unwrap_or_default();
            match refused::line(&command.to_string_lossy(), &error) {
                _ if !node::speaks(env) => {}
                Some(line) => eprintln!("{line}"),
                None => _ = error.print(),
            }
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let job_args = match typed.command {
        args::Command::Job(asked) => asked,
        args::Command::Generate(generate) => {
            return generate.run(<args::Cli as clap::CommandFactory>::command()).map_or_else(
                |line| {
                    eprintln!("haul-mpi generate: {line}");
                    ExitCode::FAILURE
                },
                |()| ExitCode::SUCCESS,
            );
        }
    };
    let alone = node::is_alone(env, std::env::vars_os().map(|(name, _)| name));
    let line = format!("MPI has not brought all ranks together within {} seconds", TOGETHER.as_secs());
    let together = guard::arm(TOGETHER, 1, Some(line));
    // The main thread alone uses MPI; more isn't asked for, since not every MPI has it.
    let universe = if alone { None } else { mpi::initialize_with_threading(Threading::Funneled) };
    if universe.is_none() && !alone {
        eprintln!("haul-mpi: MPI can't be started");
        return ExitCode::FAILURE;
    }
    let world = || universe.as_ref().map(|(universe, _)| universe.world());
    let mut wire = wire::Wire::new(world());
    if let Some(line) = node::one_of_many(env, wire.size()) {
        if node::speaks(env) {
            eprintln!("haul-mpi {}: {line}", job_args.verb().name());
        }
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("haul-mpi: threads can't be started: {error}");
            world().inspect(|world| world.abort(1));
            return ExitCode::FAILURE;
        }
    };
    rank::watch_signals(&runtime);
    let share = node::share(world().as_ref());
    drop(together);
    if wire.rank() > 0 {
        return ExitCode::from(rank::run(&mut wire, share, &runtime));
    }
    let ended = lead::run(job_args, &mut wire, share, &runtime);
    // The end of MPI waits for all ranks, and so may MPI_Abort.
    guard::arm(END, ended.code, None).for_good();
    if !ended.together {
        // The end of MPI would wait for a lost rank.
        world().inspect(|world| world.abort(i32::from(ended.code)));
    }
    ExitCode::from(ended.code)
}
