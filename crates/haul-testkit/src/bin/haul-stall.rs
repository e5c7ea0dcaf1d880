//! A far program that falls silent: `haul-stall PROTOCOL WHAT HOW FLAG AFTER COMMAND...` runs the command and hands on what passes, in
//! both directions. PROTOCOL is `sftp` or `far`. Once a request came that is WHAT (a number: the kind of an SFTP request; else a text
//! that is in it) and the file FLAG is there, nothing more is taken in, and nothing comes but AFTER bytes of the next half second: as of a
//! process that is stopped. HOW is `once`, which removes the file, or `always`. It ends after who started it, whatever else happens.

// A tool of tests, as the crate that it is of.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    io::{self, Read, Write, stdin, stdout},
    os::unix::process::parent_id,
    path::Path,
    process::{Command, Stdio, exit},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Bytes that a near end of haul says before its first frame.
const MARK: usize = 24;

/// Nothing comes any more, and how many bytes are still let through.
#[derive(Default)]
struct Stalled(AtomicBool, AtomicU64);

fn main() -> io::Result<()> {
    let parent = parent_id();
    let words: Vec<String> = env::args().skip(1).collect();
    let [protocol, what, how, flag, after, program, rest @ ..] = &words[..] else {
        return Err(io::Error::other("PROTOCOL WHAT HOW FLAG AFTER COMMAND..."));
    };
    let after = after.parse().map_err(io::Error::other)?;
    let mut child = Command::new(program).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let stalled = Arc::<Stalled>::default();
    let seen = stalled.clone();
    thread::spawn(move || answers(from, &seen));
    let mut input = stdin().lock();
    if protocol == "far" {
        let mut mark = [0; MARK];
        input.read_exact(&mut mark)?;
        to.write_all(&mark)?;
    }
    while let Some(frame) = frame(&mut input) {
        let is = match what.parse::<u8>() {
            Ok(kind) => frame.get(4) == Some(&kind),
            Err(_) => frame.windows(what.len()).any(|window| window == what.as_bytes()),
        };
        let stalls = is && Path::new(flag).exists();
        if stalls {
            stalled.1.store(after, Ordering::SeqCst);
            stalled.0.store(true, Ordering::SeqCst);
            if how == "once" {
                fs::remove_file(flag)?;
            }
        }
        if !stalls || after > 0 {
            to.write_all(&frame)?;
        }
        if stalls {
            thread::sleep(Duration::from_millis(500));
            stalled.1.store(0, Ordering::SeqCst);
            outlive(parent);
            // Not its own end of input: the program would tidy up.
            child.kill()?;
            exit(1);
        }
    }
    drop(to);
    exit(child.wait()?.code().unwrap_or(1));
}

/// The next frame, its length included; `None` at the end.
fn frame(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 4];
    input.read_exact(&mut head).ok()?;
    let mut frame = head.to_vec();
    frame.resize(4 + u32::from_be_bytes(head) as usize, 0);
    input.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// Hands answers on as long as they may come.
fn answers(mut from: impl Read, stalled: &Stalled) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let got = from.read(&mut buffer)?;
        if got == 0 {
            return Ok(());
        }
        let may = match stalled.0.load(Ordering::SeqCst) {
            true => stalled.1.load(Ordering::SeqCst).min(got as u64),
            false => got as u64,
        };
        stalled.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(may))).ok();
        if may == 0 {
            continue;
        }
        let mut output = stdout().lock();
        output.write_all(&buffer[..may as usize])?;
        output.flush()?;
    }
}

/// Waits until who started it has ended.
fn outlive(parent: u32) {
    while parent_id() == parent {
        thread::sleep(Duration::from_millis(50));
    }
}
