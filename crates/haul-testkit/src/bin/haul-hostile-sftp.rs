//! An SFTP server that lies: `haul-hostile-sftp HOW`, over standard input and output, whatever host is named behind HOW. Asked for a
//! command instead of the subsystem, it says that there is none.
//!
//! `name=X` lists a file of that name; `size` says that a file of seven bytes has a
//! thousand; `endless` lists the same names without an end; `garbage` answers with bytes that are no frame; `huge` announces a frame
//! of two gigabytes; `strange` answers every question with another's answer; `more` gives more bytes than it was asked for; `silent`
//! closes after its greeting; `mute` stays, and answers nothing; `deep` lists a directory in each directory. `slow` tells no lies: it
//! copies `f`, of 200 MiB, inside itself, which takes 20 ms a MiB, and forces bytes to its disk in three seconds and a half. `swapped`
//! tells of the end of a directory before its last names; `unseen=FILE` can't say what `f` is, opens it and refuses its bytes, and makes FILE
//! when it is to remove it. `unread` lists no name of its directories but that of the topmost one. `fuzz=SEED` says what comes into its mind, some hundred times.

use haul_testkit::chance::Chance;
use std::{
    env,
    io::{self, Read, Write, stdin, stdout},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

/// Bytes of the file that is copied, and how long a MiB takes.
const COPIED: u64 = 200 << 20;
const MIB: Duration = Duration::from_millis(20);
const FORCED: Duration = Duration::from_millis(3500);

/// Requests that `fuzz` answers.
const REQUESTS: u32 = 400;

/// Names, of which most can't be any.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c.txt",
    b"d",
    b"..",
    b".",
    b"../escaped",
    b"/etc/escaped",
    b"",
    b"x\0y",
    b"a/b",
    b"\xff\xfe",
    b"new\nline",
    b"d/../x",
    b".haul-e30c2799c19cc4a5.f.old",
    b"\x1b[31mred",
];

const SIZES: [u64; 8] = [0, 7, 7, 1 << 20, 1 << 40, 1 << 63, u64::MAX, i64::MAX as u64];
const MODES: [u32; 8] = [FILE, FILE, DIR, 0o120_777, 0o010_644, 0, 0o107_777, u32::MAX];

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn attrs(size: u64, mode: u32) -> Vec<u8> {
    let mut out = 0x0d_u32.to_be_bytes().to_vec();
    out.extend(size.to_be_bytes());
    out.extend(mode.to_be_bytes());
    out.extend([0, 0, 0, 1, 0x5f, 0x5e, 0x10, 0]);
    out
}

fn send(kind: u8, id: u32, body: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(&(body.len() as u32 + 5).to_be_bytes())?;
    out.write_all(&[kind])?;
    out.write_all(&id.to_be_bytes())?;
    out.write_all(body)?;
    out.flush()
}

fn status(id: u32, code: u32) -> io::Result<()> {
    send(101, id, &[&code.to_be_bytes()[..], &string(b""), &string(b"")].concat())
}

fn main() -> ExitCode {
    match env::args().next_back().is_some_and(|last| last == "sftp") {
        true => serve().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        false => ExitCode::from(127),
    }
}

fn serve() -> io::Result<()> {
    let how = env::args().nth(1).unwrap_or_default();
    if let Some(seed) = how.strip_prefix("fuzz=") {
        return fuzz(&mut Chance(seed.parse().unwrap_or_default()));
    }
    let (mut input, mut listed, mut copied) = (stdin().lock(), false, false);
    let (mut pages, mut at_the_top) = (Vec::new(), false);
    loop {
        let mut head = [0; 4];
        if input.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let mut frame = vec![0; u32::from_be_bytes(head) as usize];
        input.read_exact(&mut frame)?;
        let id = frame.get(1..5).and_then(|id| id.try_into().ok()).map_or(0, u32::from_be_bytes);
        let text = || {
            let len = frame.get(5..9).and_then(|len| len.try_into().ok()).map_or(0, u32::from_be_bytes) as usize;
            frame.get(9..9 + len).unwrap_or_default().to_vec()
        };
        if frame[0] == 1 {
            let mut greeting = vec![2, 0, 0, 0, 3];
            if how == "slow" {
                for name in [&b"copy-data"[..], b"fsync@openssh.com"] {
                    greeting.extend([string(name), string(b"1")].concat());
                }
            }
            stdout().write_all(&string(&greeting))?;
            stdout().flush()?;
            if how == "silent" {
                return Ok(());
            }
            continue;
        }
        match (&*how, frame[0]) {
            ("garbage", _) => {
                stdout().write_all(b"\x00\x00\x00\x09\xff\x00garbage and more of it")?;
                stdout().flush()?;
            }
            ("huge", _) => {
                stdout().write_all(&[0x7f, 0xff, 0xff, 0xff, 105])?;
                stdout().flush()?;
            }
            ("strange", _) => send(103, id, &string(b"data"))?,
            ("mute", _) => {}
            ("slow", 200) if text() == b"copy-data" => {
                let number =
                    |at: usize| frame.get(at..at + 8).and_then(|n| n.try_into().ok()).map_or(0, u64::from_be_bytes);
                // Behind the name, and the handle of one byte.
                let (from, len) = (number(23), number(31));
                let end = if len == 0 { COPIED } else { from + len };
                sleep(MIB * u32::try_from((end - from) >> 20).unwrap_or(u32::MAX));
                copied |= end == COPIED;
                status(id, 0)?;
            }
            ("slow", 200) => {
                sleep(FORCED);
                status(id, 0)?;
            }
            ("slow", 7 | 17) => match text().ends_with(b"/f") {
                true => send(105, id, &attrs(COPIED, FILE))?,
                false if text().ends_with(b"folder") => send(105, id, &attrs(0, DIR))?,
                false => status(id, 2)?,
            },
            ("slow", 8) => send(105, id, &attrs(if copied { COPIED } else { 7 }, FILE))?,
            ("deep", 12) if !listed => {
                listed = true;
                send(
                    104,
                    id,
                    &[&1_u32.to_be_bytes()[..], &string(b"directory"), &string(b""), &attrs(0, DIR)].concat(),
                )?;
            }
            ("swapped", 12) => {
                pages.push(id);
                match pages[..] {
                    [first] => send(104, first, &one_name(b"a", 7))?,
                    [_, _] => {}
                    [_, second, third] => {
                        status(second, 1)?;
                        send(104, third, &one_name(b"b", 7))?;
                    }
                    _ => status(id, 1)?,
                }
            }
            (unseen, 6 | 7 | 13) if unseen.starts_with("unseen=") && (frame[0] == 6 || text().ends_with(b"/f")) => {
                if frame[0] == 13 {
                    std::fs::File::create_new(unseen.trim_start_matches("unseen="))?;
                }
                status(id, if frame[0] == 13 { 0 } else { 4 })?;
            }
            ("unread", 11) => {
                (listed, at_the_top) = (false, text() == b"/");
                send(102, id, &string(b"h"))?;
            }
            ("unread", 12) if at_the_top && !listed => {
                listed = true;
                send(104, id, &one_name(b".", 0))?;
            }
            ("unread", 12) => status(id, 1)?,
            // Open, open a directory.
            (_, 3 | 11) => {
                listed = false;
                send(102, id, &string(b"h"))?;
            }
            (_, 5) => {
                let at = u64::from_be_bytes(frame[frame.len() - 12..frame.len() - 4].try_into().expect("eight"));
                let bytes: &[u8] = if how == "more" { &[b'x'; 200_000] } else { b"content" };
                if at == 0 { send(103, id, &string(bytes))? } else { status(id, 1)? }
            }
            (_, 12) if listed && how != "endless" => status(id, 1)?,
            (_, 12) => {
                listed = true;
                let name = how.strip_prefix("name=").unwrap_or("f").as_bytes().to_vec();
                let size = if how == "size" { 1000 } else { 7 };
                send(104, id, &one_name(&name, size))?;
            }
            (_, 7 | 17) => match text().ends_with(b"f") {
                true => send(105, id, &attrs(if how == "size" { 1000 } else { 7 }, FILE))?,
                false => send(105, id, &attrs(0, DIR))?,
            },
            (_, 8) => send(105, id, &attrs(if how == "size" { 1000 } else { 7 }, FILE))?,
            _ => status(id, 0)?,
        }
    }
}

/// An answer that lists one file.
fn one_name(name: &[u8], size: u64) -> Vec<u8> {
    [&1_u32.to_be_bytes()[..], &string(name), &string(b""), &attrs(size, FILE)].concat()
}

/// Facts of a file, most of which no file has.
fn odd_attrs(chance: &mut Chance) -> Vec<u8> {
    let mut out = attrs(*chance.of(&SIZES), *chance.of(&MODES));
    match chance.below(12) {
        // Facts that aren't there, and some that nobody has asked for.
        0 => out = 0_u32.to_be_bytes().to_vec(),
        1 => out[0] = 0x80,
        2 => out.truncate(chance.below(out.len())),
        _ => {}
    }
    out
}

/// Greets as it should, and then answers as is asked, or with something else.
fn fuzz(chance: &mut Chance) -> io::Result<()> {
    let mut input = stdin().lock();
    let mut named = 0;
    for _ in 0..REQUESTS {
        let mut head = [0; 4];
        if input.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let mut frame = vec![0; u32::from_be_bytes(head) as usize];
        input.read_exact(&mut frame)?;
        if frame[0] == 1 {
            let mut greeting = vec![2, 0, 0, 0, 3];
            for name in [&b"posix-rename@openssh.com"[..], b"copy-data", b"limits@openssh.com"] {
                greeting.extend([string(name), string(b"1")].concat());
            }
            stdout().write_all(&string(&greeting))?;
            stdout().flush()?;
            continue;
        }
        let id = frame.get(1..5).and_then(|id| id.try_into().ok()).map_or(0, u32::from_be_bytes);
        let suits = match frame[0] {
            3 | 11 => 102,
            5 => 103,
            12 if named % 3 < 2 => 104,
            7 | 8 | 17 => 105,
            19 => 104,
            200 => 201,
            _ => 101,
        };
        named += u32::from(frame[0] == 12);
        let kind = if chance.below(8) == 0 { *chance.of(&[101, 102, 103, 104, 105, 201, 7, 255]) } else { suits };
        let body = match kind {
            101 if chance.below(4) > 0 => [&1_u32.to_be_bytes()[..], &string(b"end"), &string(b"")].concat(),
            101 => [&chance.of(&[0, 2, 3, 4, 5, 8, 99_u32]).to_be_bytes()[..], &string(&chance.bytes(40))].concat(),
            102 => string(b"h"),
            103 => string(chance.of::<&[u8]>(&[b"content", b"", b"cont", &[b'x'; 70_000]])),
            104 => names(chance),
            105 => odd_attrs(chance),
            _ => chance.bytes(100),
        };
        let id = if chance.below(40) == 0 { chance.next() as u32 } else { id };
        let mut whole = [&(body.len() as u32 + 5).to_be_bytes()[..], &[kind], &id.to_be_bytes(), &body].concat();
        match chance.below(60) {
            0 => whole.truncate(chance.below(whole.len())),
            1 => whole.extend(whole.clone()),
            2 => {
                let at = chance.below(whole.len());
                whole[at] ^= 1 << chance.below(8);
            }
            3 => whole = chance.bytes(100),
            _ => {}
        }
        stdout().write_all(&whole)?;
        stdout().flush()?;
    }
    Ok(())
}

/// Names with facts, fewer or more than it says.
fn names(chance: &mut Chance) -> Vec<u8> {
    let count = chance.below(5) as u32;
    let claimed = if chance.below(20) == 0 { chance.next() as u32 } else { count };
    let mut out = claimed.to_be_bytes().to_vec();
    for _ in 0..count {
        // Most are as they should be, or nothing would ever be read.
        let name = if chance.below(3) > 0 { *chance.of(&NAMES[..4]) } else { *chance.of(&NAMES) };
        out.extend([string(name), string(&chance.bytes(60)), odd_attrs(chance)].concat());
    }
    out
}
