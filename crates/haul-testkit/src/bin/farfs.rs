//! A folder shown at a second place through FUSE, where each request is answered after a delay, as a network's file systems answer:
//! arguments in, one line out, then it is there until standard input is closed.

use clap::{Arg, Command, value_parser};
use haul_testkit::fuse::{FsBehaviour, MountedFs};
use std::{io::stdin, path::PathBuf, process::ExitCode, time::Duration};

const ABOUT: &str = "A folder shown at a second place, as far away as one likes; needs root and /dev/fuse";

const MORE: &str = "\
When it is mounted it prints one line: farfs PLACE
For each line of its input it prints how many bytes were written so far: written BYTES
It is unmounted when standard input is closed, or the process ends in any other way.";

fn main() -> ExitCode {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name).help(help).required(true).value_parser(value_parser!(PathBuf))
    };
    let delay =
        Arg::new("delay").long("delay").value_name("MICROSECONDS").help("How long a request waits for its answer");
    let given = Command::new("farfs")
        .about(ABOUT)
        .after_help(MORE)
        .arg(path("FOLDER", "The folder that is shown; made if it isn't there"))
        .arg(path("PLACE", "Where; made if it isn't there"))
        .arg(delay.default_value("1000").value_parser(value_parser!(u64)))
        .get_matches();
    let place = |name| given.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let delay = Duration::from_micros(given.get_one("delay").copied().unwrap_or_default());
    let Some(mounted) =
        MountedFs::new(&place("FOLDER"), &place("PLACE"), FsBehaviour { delay, ..FsBehaviour::default() })
    else {
        return ExitCode::FAILURE;
    };
    println!("farfs {}", place("PLACE").display());
    for _ in stdin().lines().map_while(Result::ok) {
        println!("written {}", mounted.written());
    }
    drop(mounted);
    ExitCode::SUCCESS
}
