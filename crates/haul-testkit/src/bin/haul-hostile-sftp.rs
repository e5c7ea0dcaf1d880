//! An SFTP server that lies: `haul-hostile-sftp HOW`, over standard input and output, whatever host is named behind HOW. Asked for a
//! command instead of the subsystem, it says that there is none.
//!
//! `name=X` lists a file of that name; `size` says that a file of seven bytes has a
//! thousand; `endless` lists the same names without an end; `garbage` answers with bytes that are no frame; `huge` announces a frame
//! of two gigabytes; `strange` answers every question with another's answer; `more` gives more bytes than it was asked for; `silent`
//! closes after its greeting.

use std::{
    env,
    io::{self, Read, Write, stdin, stdout},
    process::ExitCode,
};

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
    let (mut input, mut listed) = (stdin().lock(), false);
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
            stdout().write_all(&[0, 0, 0, 5, 2, 0, 0, 0, 3])?;
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
                let entry = [string(&name), string(b""), attrs(size, FILE)].concat();
                send(104, id, &[&1_u32.to_be_bytes()[..], &entry].concat())?;
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
