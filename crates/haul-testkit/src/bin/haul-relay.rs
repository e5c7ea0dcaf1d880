//! `haul-relay --delay-ms=50 --rate=20000000 COMMAND…`: a command at the other end of a slow road, see `haul_testkit::relay`.

use haul_testkit::relay::Road;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (road, command) = Road::read(std::env::args().skip(1));
    if command.is_empty() {
        eprintln!("haul-relay: which command?");
        return ExitCode::FAILURE;
    }
    road.run(&command)
}
