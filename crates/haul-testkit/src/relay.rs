//! A slow road: what comes in at one end goes out at the other a while later, no faster than it may, until it is cut. Between a command
//! and who starts it (`haul-relay`), so that it stands where ssh has its ProxyCommand; or between two addresses of this machine.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// How slow.
#[derive(Clone, Debug, Default)]
pub struct Road {
    /// What each byte takes, in each direction.
    pub delay: Duration,
    /// Bytes a second in each direction.
    pub rate: Option<u64>,
    /// It ends after so many bytes in both directions together, if this file is there, which is removed then.
    pub cut: Option<(u64, PathBuf)>,
    /// This file tells how many bytes have passed in both directions together.
    pub count: Option<PathBuf>,
    /// Connections to the first address go to the second, on each port that is given instead of a command.
    pub between: Option<(IpAddr, IpAddr)>,
}

/// Bytes that are taken at a time: little, so that a rate is even.
const PIECE: usize = 32 << 10;

impl Road {
    /// The words of the program for this road, before the command that is at its end.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![format!("--delay-ms={}", self.delay.as_millis())];
        words.extend(self.rate.map(|rate| format!("--rate={rate}")));
        if let Some((bytes, file)) = &self.cut {
            words.extend([format!("--cut={bytes}"), format!("--cut-if={}", file.display())]);
        }
        words.extend(self.count.as_ref().map(|file| format!("--count={}", file.display())));
        words.extend(self.between.map(|(from, to)| format!("--between={from},{to}")));
        words
    }

    /// Reads them again; gives the command, too.
    ///
    /// # Panics
    /// On a word that isn't one.
    pub fn read(words: impl Iterator<Item = String>) -> (Road, Vec<String>) {
        let (mut road, mut command) = (Road::default(), Vec::new());
        for word in words {
            match word.split_once('=') {
                _ if !command.is_empty() || !word.starts_with("--") => command.push(word),
                Some(("--delay-ms", ms)) => road.delay = Duration::from_millis(ms.parse().expect("milliseconds")),
                Some(("--rate", rate)) => road.rate = Some(rate.parse().expect("bytes a second")),
                Some(("--cut", bytes)) => road.cut = Some((bytes.parse().expect("bytes"), PathBuf::new())),
                Some(("--count", file)) => road.count = Some(file.into()),
                Some(("--between", both)) => {
                    let (from, to) = both.split_once(',').expect("two addresses");
                    road.between = Some((from.parse().expect("an address"), to.parse().expect("an address")));
                }
                Some(("--cut-if", file)) => road.cut = road.cut.map(|(bytes, _)| (bytes, file.into())),
                _ => panic!("{word:?}?"),
            }
        }
        (road, command)
    }

    /// Takes connections on these ports until it is ended. Says a line on standard output when it does.
    ///
    /// # Panics
    /// When it can't, or has no two addresses.
    pub fn forward(&self, ports: &[u16]) -> ! {
        let (from, to) = self.between.expect("two addresses");
        let passed = Arc::new(AtomicU64::new(0));
        for &port in ports {
            let (road, passed) = (self.clone(), passed.clone());
            let listener = TcpListener::bind((from, port)).expect("a free port");
            thread::spawn(move || {
                for near in listener.incoming().flatten() {
                    // Nobody there: who came sees the end.
                    let Ok(far) = TcpStream::connect((to, port)) else { continue };
                    for (input, output) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                        let (road, passed) = (road.clone(), passed.clone());
                        let (input, output) = (input.expect("a stream"), output.expect("a stream"));
                        let _ = output.set_nodelay(true);
                        thread::spawn(move || {
                            let (end, source) = (output.try_clone(), input.try_clone());
                            road.carry(input, output, &passed);
                            // Each half ends by itself.
                            let _ = end.and_then(|end| end.shutdown(Shutdown::Write));
                            let _ = source.and_then(|source| source.shutdown(Shutdown::Read));
                        });
                    }
                }
            });
        }
        println!("listening");
        loop {
            thread::park();
        }
    }

    /// Runs a command whose input and output are ours, at the other end of the road.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn run(&self, command: &[String]) -> ExitCode {
        let mut started = Command::new(&command[0]);
        let mut child =
            started.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let passed = Arc::new(AtomicU64::new(0));
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (road, count) = (self.clone(), passed.clone());
        thread::spawn(move || road.carry(io::stdin(), input, &count));
        self.carry(output, io::stdout(), &passed);
        let _ = child.kill();
        let _ = child.wait();
        ExitCode::SUCCESS
    }

    fn carry(&self, mut from: impl Read + Send + 'static, mut to: impl Write, passed: &AtomicU64) {
        let (send, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
        let reader = move || {
            let mut buffer = vec![0; PIECE];
            while let Ok(got @ 1..) = from.read(&mut buffer) {
                if send.send((Instant::now(), buffer[..got].to_vec())).is_err() {
                    return;
                }
            }
        };
        thread::spawn(reader);
        let mut free = Instant::now();
        for (came, bytes) in pieces {
            let mut goes = came + self.delay;
            if let Some(rate) = self.rate {
                goes = goes.max(free);
                free = goes.max(Instant::now() - Duration::from_millis(50))
                    + Duration::from_secs_f64(bytes.len() as f64 / rate as f64);
            }
            thread::sleep(goes.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
                return;
            }
            let passed = passed.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
            if let Some(file) = &self.count {
                // Whole at any time: this may be killed while it writes.
                let beside = file.with_extension(passed.to_string());
                std::fs::write(&beside, passed.to_string()).expect("written");
                std::fs::rename(&beside, file).expect("renamed");
            }
            if let Some((most, file)) = &self.cut
                && passed >= *most
                && std::fs::remove_file(file).is_ok()
            {
                std::process::exit(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_road_is_told_in_words() {
        let road = Road {
            delay: Duration::from_millis(50),
            rate: Some(1000),
            cut: Some((77, "/f".into())),
            count: Some("/n".into()),
            between: Some(([127, 0, 0, 2].into(), [127, 0, 0, 1].into())),
        };
        let words = road.words().into_iter().chain(["sshd".to_owned(), "--delay-ms=1".to_owned()]);
        let (read, command) = Road::read(words);
        assert_eq!(format!("{read:?}"), format!("{road:?}"));
        assert_eq!(command, ["sshd", "--delay-ms=1"]);
    }
}
