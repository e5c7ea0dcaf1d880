//! A far end that says what comes into its mind: `haul-hostile-far SEED`, over standard input and output. It greets as it should and opens
//! what is asked for. All else it answers as is asked, or otherwise: with what another request would get, names that lead elsewhere, sizes
//! that nothing has, frames that are cut, of other requests, twice, or none at all. After some hundred requests it has had enough.

use haul_core::{Entry, Key, Mtime, Version};
use haul_store::{Part, StoredFacts};
use haul_testkit::chance::Chance;
use serde_json::{Value, json};
use std::{
    env,
    io::{self, Read, Write, stdin, stdout},
};

/// Requests that it answers.
const REQUESTS: u32 = 300;

/// Names, of which most can't be any.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "d/",
    "d/e",
    "../escaped",
    "..",
    "/etc/escaped",
    "a//b",
    "a/../../escaped",
    "x\0y",
    "",
    ".",
    "d/../x",
    "zz",
    "d/d/",
    "in/../../escaped",
];

fn main() -> io::Result<()> {
    let seed = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    let (mut chance, mut input) = (Chance(seed), stdin().lock());
    let mut mark = [0; 24];
    input.read_exact(&mut mark)?;
    let mut greeted = false;
    for _ in 0..REQUESTS {
        let mut head = [0; 9];
        if input.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let [a, b, c, d, kind, e, f, g, h] = head;
        let mut body = vec![0; (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(5)];
        input.read_exact(&mut body)?;
        if kind != 1 {
            continue;
        }
        let id = u32::from_be_bytes([e, f, g, h]);
        let mut out = Vec::new();
        if !greeted {
            out.extend(mark);
            let about = json!({"packs": false, "keeps": chance.below(2) == 0});
            out.extend(frame(2, id, &message(&json!({"Serves": {"version": 2, "build": "1", "about": about}}))));
            greeted = true;
        } else if body.windows(4).any(|window| window == b"Open") && chance.below(20) > 0 {
            out.extend(frame(2, id, &message(&json!({"Folder": 7}))));
        } else {
            for _ in 0..=chance.below(3) {
                out.extend(answer(&mut chance, id));
            }
        }
        let mut output = stdout().lock();
        output.write_all(&out)?;
        output.flush()?;
    }
    Ok(())
}

fn frame(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 5).to_be_bytes()[..], &[kind], &id.to_be_bytes(), body].concat()
}

fn message(value: &impl serde::Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap_or_default()
}

/// A variant that holds a value of the project's.
fn named(name: &str, value: &impl serde::Serialize) -> Vec<u8> {
    [&[0x81, 0xa0 | name.len() as u8][..], name.as_bytes(), &message(value)].concat()
}

fn entry(chance: &mut Chance) -> Entry {
    let size = *chance.of(&[0, 1, 7, 7, 7, 1 << 20, 1 << 40, u64::MAX, 1 << 63]);
    let name = *chance.of(&NAMES);
    let entry = if name.ends_with('/') { Entry::dir(Key::new(name)) } else { Entry::file(Key::new(name), size) };
    let mtime = *chance.of(&[None, Some(Mtime(0)), Some(Mtime(i128::MAX)), Some(Mtime(i128::MIN))]);
    let version = chance.of(&[None, Some("v"), Some("")]).map(|version: &str| Version::new(version));
    Entry { mtime, version, ..entry }
}

fn answer(chance: &mut Chance, id: u32) -> Vec<u8> {
    let id = if chance.below(12) == 0 { chance.next() as u32 } else { id };
    let body = match chance.below(14) {
        0..4 => {
            let mut entries: Vec<Entry> = (0..chance.below(6)).map(|_| entry(chance)).collect();
            if chance.below(2) == 0 {
                entries.sort_by(|a, b| a.key.cmp(&b.key));
            }
            named("Batch", &entries)
        }
        4 => message(chance.of(&["End", "Cut", "Done", "None"])),
        5 => named("Entry", &entry(chance)),
        6 => return frame(3, id, &chance.bytes(200)),
        7 => message(&json!({"Sent": chance.next()})),
        8 => message(&json!({"Upload": chance.next()})),
        9 => named("Stored", &(StoredFacts { size: chance.next(), ..StoredFacts::default() }, Some(chance.next()))),
        10 => {
            named("Part", &(Part { index: chance.next(), size: chance.next(), tag: chance.bytes(200) }, chance.next()))
        }
        11 => message(&named_values(chance)),
        12 => chance.bytes(200),
        _ => return raw(chance, id),
    };
    let mut whole = frame(*chance.of(&[2, 2, 2, 2, 2, 2, 2, 6, 3]), id, &body);
    match chance.below(16) {
        0 => whole.truncate(chance.below(whole.len())),
        1 => whole.extend(whole.clone()),
        2 => {
            let at = chance.below(whole.len());
            whole[at] ^= 1 << chance.below(8);
        }
        _ => {}
    }
    whole
}

/// Answers with many items, of which there may be too few or too many.
fn named_values(chance: &mut Chance) -> Value {
    let count = *chance.of(&[0, 1, 2, 1000]);
    let many = vec![json!({"Ok": null}); count];
    chance
        .of(&[
            json!({"Deleted": many}),
            json!({"Settled": many}),
            json!({"Copied": []}),
            json!({"Progress": [u64::MAX, u64::MAX]}),
            json!({"Token": null}),
            json!({"Flag": true}),
            json!({"Space": {"total": u64::MAX, "used": u64::MAX, "free": u64::MAX}}),
            json!({"Parts": []}),
        ])
        .clone()
}

/// What is no answer at all.
fn raw(chance: &mut Chance, id: u32) -> Vec<u8> {
    match chance.below(5) {
        0 => vec![0xff; 9],
        1 => vec![0, 0, 0, 4, 2, 0, 0, 0, 1],
        2 => frame(0x82, id, &chance.bytes(200)),
        3 => frame(*chance.of(&[0, 1, 4, 5, 7, 200]), id, &chance.bytes(200)),
        _ => chance.bytes(200),
    }
}
