//! `haul`: moves data between clouds, clusters and disks. Arguments, configuration, terminal, signals and exit codes;
//! what happens to data is decided in the libraries below.

#![allow(rustdoc::bare_urls)] // Examples in the help of commands are shown as they are.

mod app;
mod args;
mod bwlimit;
mod cli;
mod colour;
mod commands;
mod complete;
mod context;
mod environment;
mod error;
mod flags;
mod help;
mod journal;
mod log;
mod machine;
mod progress;
mod prompt;
mod reference;
mod show;
mod signals;
mod summary;

use haul_terminal::print;
use std::process::ExitCode;

/// Network frames and parts come and go by the thousand; the C library's allocator gives such blocks back to the kernel
/// and faults them in again each time. Without huge pages: they cost twice the memory (each thread's few small blocks fill one)
/// and the time to clear it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(app::main(std::env::args_os().collect()))
}
