//! Ports of loopback for servers that are programs of their own. One that listens in a test's own process takes port 0 instead.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Where they begin: above those that services have, and below those that the kernel gives to whoever takes any (from 32768 on with
/// Linux). One of the latter would be another's before a server that takes seconds to start listens on it, and then the test would talk
/// to that other.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// A port on which nobody listens, and that no other test of this process is given. Each process begins elsewhere.
///
/// Errors: all are taken.
pub fn free() -> io::Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // The golden ratio spreads processes that were started one after another.
    let begin = (f64::from(process::id()) * 0.618_033_988_75).fract() * f64::from(COUNT);
    for _ in 0..COUNT {
        let number = (begin as u32 + GIVEN.fetch_add(1, Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + number).map_err(io::Error::other)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_given_once() {
        let ports: Vec<u16> = (0..50).map(|_| free().unwrap()).collect();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[49] + 1));
        let more = free().unwrap();
        assert!(more != ports[49] + 1 && !ports.contains(&more));
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]) && ports.iter().all(|port| *port < 32_768));
    }
}
