//! How much the simulator serves on this machine: a client that does as little as possible, for a few seconds a case.
//! `cargo run --release -p haul-testkit --example cloudsim_load`. Prints rates, and the CPU time that the server's
//! threads took: server and client share the cores.

#![allow(clippy::disallowed_methods)] // It reads /proc.

use haul_testkit::cloudsim::{Cloudsim, ObjectSpec};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const CONNECTIONS: usize = 4;
const TIME: Duration = Duration::from_secs(3);

struct Case {
    name: &'static str,
    method: &'static str,
    /// `#` stands for a number.
    path: &'static str,
    body: usize,
}

const CASES: [Case; 8] = [
    Case { name: "GET of 64 MB", method: "GET", path: "/b/big", body: 0 },
    Case { name: "GET of 1 MB", method: "GET", path: "/b/megabyte", body: 0 },
    Case { name: "GET of 1 kB", method: "GET", path: "/syn/file-0000#.bin", body: 0 },
    Case { name: "HEAD", method: "HEAD", path: "/b/megabyte", body: 0 },
    Case { name: "PUT of 1 kB", method: "PUT", path: "/b/small-#", body: 1000 },
    Case { name: "PUT of 1 MB", method: "PUT", path: "/b/large-#", body: 1_000_000 },
    Case { name: "PUT of 1 MB, sizes only", method: "PUT", path: "/sizes/large-#", body: 1_000_000 },
    Case { name: "page of 1000 keys", method: "GET", path: "/syn?list-type=2&start-after=file-0000#.bin", body: 0 },
];

fn main() -> std::io::Result<()> {
    let server = Cloudsim::with(&[("bucket", "b"), ("bucket", "sizes"), ("bucket", "syn:keys=100000,size=1000")]);
    server.set(Some("sizes"), &[("keep", "sizes")]).map_err(std::io::Error::other)?;
    server.make("b", b"big", &ObjectSpec { size: 64_000_000, ..ObjectSpec::default() });
    server.make("b", b"megabyte", &ObjectSpec { size: 1_000_000, ..ObjectSpec::default() });
    println!("{CONNECTIONS} connections, {} s each case", TIME.as_secs());
    for case in &CASES {
        let (requests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (start, cpu) = (Instant::now(), server_seconds());
        thread::scope(|scope| {
            for number in 0..CONNECTIONS {
                let (requests, bytes, address) = (&requests, &bytes, server.address());
                scope.spawn(move || client(case, number, address, requests, bytes));
            }
        });
        let (time, cpu) = (start.elapsed().as_secs_f64(), server_seconds() - cpu);
        let (requests, bytes) = (requests.load(Relaxed) as f64, bytes.load(Relaxed) as f64);
        println!(
            "{:24} {:9.0} requests/s {:8.3} GB/s   server's CPU {:6.1} us a request, {:5.2} s a GB",
            case.name,
            requests / time,
            bytes / time / 1e9,
            cpu / requests * 1e6,
            cpu / bytes * 1e9,
        );
    }
    server.stop();
    Ok(())
}

fn client(case: &Case, number: usize, address: SocketAddr, requests: &AtomicU64, bytes: &AtomicU64) {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).expect("a socket");
    let (body, mut buffer) = (vec![7; case.body], vec![0; 512 << 10]);
    let end = Instant::now() + TIME;
    for round in 0.. {
        if Instant::now() > end {
            return;
        }
        let path = case.path.replace('#', &format!("{:04}", (round * CONNECTIONS + number) % 10_000));
        let mut request =
            format!("{} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", case.method, body.len())
                .into_bytes();
        if body.len() < 64 << 10 {
            request.extend_from_slice(&body);
        }
        socket.write_all(&request).expect("sent");
        if body.len() >= 64 << 10 {
            socket.write_all(&body).expect("sent");
        }
        let received = answer(&mut socket, &mut buffer, case.method == "HEAD");
        requests.fetch_add(1, Relaxed);
        bytes.fetch_add(received + body.len() as u64, Relaxed);
    }
}

/// Reads an answer; gives the bytes of its body.
fn answer(socket: &mut TcpStream, buffer: &mut [u8], head_only: bool) -> u64 {
    let (mut have, mut head) = (0, None);
    while head.is_none() {
        let read = socket.read(&mut buffer[have..]).expect("an answer");
        assert!(read > 0, "the server closed the connection");
        have += read;
        head = buffer[..have].windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
    }
    let head = head.unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{text}");
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0u64);
    if head_only {
        return 0;
    }
    let mut left = length - (have - head) as u64;
    while left > 0 {
        let read = socket.read(buffer).expect("a body") as u64;
        assert!(read > 0, "the server closed the connection");
        left -= read;
    }
    length
}

/// CPU seconds of the threads whose names begin with `cloudsim`, at 100 ticks a second as Linux reports them.
fn server_seconds() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let ours = stats.filter(|stat| stat.contains("(cloudsim"));
    let ticks = ours.map(|stat| {
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum::<f64>()
    });
    ticks.sum::<f64>() / 100.0
}
