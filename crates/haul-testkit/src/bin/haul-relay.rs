//! `haul-relay --delay-ms=50 --rate=20000000 COMMAND…`: a command at the other end of a slow road, see `haul_testkit::relay`;
//! `haul-relay --delay-ms=50 --between=127.0.0.2,127.0.0.1 PORT…`: connections to the first address go to the second.

use haul_testkit::relay::Road;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (road, command) = Road::read(std::env::args().skip(1));
    if command.is_empty() {
        eprintln!("haul-relay: which command?");
        return ExitCode::FAILURE;
    }
    if road.between.is_some() {
        let ports: Vec<u16> = command.iter().map(|port| port.parse().expect("a port")).collect();
        road.forward(&ports)
    }
    road.run(&command)
}
