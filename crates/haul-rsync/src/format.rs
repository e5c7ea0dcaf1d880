//! rsync output that scripts parse: the letters of `--itemize-changes`, the escapes of `--out-format`, its numbers, and how it
//! shows names. Pure: takes facts, returns text.

use haul_core::compare::{Difference, FileType};
use std::time::Duration;

/// File attributes that are kept, and so shown when they differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct PreservedAttributes {
    pub times: bool,
    pub dir_times: bool,
    pub link_times: bool,
    pub perms: bool,
    pub executability: bool,
    pub owner: bool,
    pub group: bool,
    pub atimes: bool,
    pub acls: bool,
    pub xattrs: bool,
    pub checksum: bool,
}

/// The change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Its bytes are transferred here.
    Received,
    /// Its bytes are sent to a remote.
    Sent,
    /// It is made or changed without any bytes.
    Local,
    /// It becomes a copy of an alternate destination's file.
    Found,
    /// It is another name of a file of an alternate destination, or of its file before.
    Linked,
    /// It becomes another name of a file, which is reported even if nothing else changes.
    Tied,
    /// At most its attributes are set.
    None,
}

/// The eleven letters of `-i`.
pub fn letters(update: Update, differs: &Difference, kept: &PreservedAttributes) -> String {
    let what = differs.what;
    let first = match update {
        Update::Received => '>',
        Update::Sent => '<',
        Update::Local | Update::Found => 'c',
        Update::Linked | Update::Tied => 'h',
        Update::None => '.',
    };
    let second = match what {
        FileType::File => 'f',
        FileType::Dir => 'd',
        FileType::Link => 'L',
        FileType::Device => 'D',
        FileType::Special => 'S',
    };
    if differs.new {
        return format!("{first}{second}+++++++++");
    }
    let moves = matches!(update, Update::Received | Update::Sent);
    let changed =
        (moves && kept.checksum) || (update == Update::Local && matches!(what, FileType::Link | FileType::Device));
    let flag = |on: bool, letter: char| if on { letter } else { '.' };
    let keeps_time = match what {
        FileType::Dir => kept.dir_times,
        FileType::Link => kept.link_times,
        _ => kept.times,
    };
    let made = matches!(update, Update::Local | Update::Found | Update::Tied);
    let time = if keeps_time { differs.mtime } else { moves || (made && what != FileType::Dir) };
    let perms = (kept.perms && differs.perms || kept.executability && differs.executable) && what != FileType::Link;
    let rest: String = [
        flag(changed, 'c'),
        flag(differs.size && what == FileType::File, 's'),
        flag(time, if kept.times { 't' } else { 'T' }),
        flag(perms, 'p'),
        flag(kept.owner && differs.owner, 'o'),
        flag(kept.group && differs.group, 'g'),
        flag(kept.atimes && differs.atime && what == FileType::File, 'u'),
        flag(kept.acls && differs.acls, 'a'),
        flag(kept.xattrs && differs.xattrs, 'x'),
    ]
    .iter()
    .collect();
    let blank = !moves && rest.chars().all(|c| c == '.');
    format!("{first}{second}{}", if blank { " ".repeat(9) } else { rest })
}

/// True when the letters show a change.
pub fn tells(letters: &str) -> bool {
    letters.starts_with(['>', '<']) || letters[2..].chars().any(|c| c != ' ' && c != '.')
}

/// Fields of a name for `--out-format`.
pub trait Fields {
    /// The text for an escape's letter, its numbers as `human` says; `None` for one that there isn't.
    fn field(&self, letter: char, human: u8) -> Option<Vec<u8>>;
}

/// True when a format has this letter's escape.
pub fn asks(format: &str, letter: char) -> bool {
    let width = |c: char| c.is_ascii_digit() || c == '-' || c == '\'';
    let escapes = format.split("%%").flat_map(|part| part.split('%').skip(1));
    escapes.map(|escape| escape.trim_start_matches(width)).any(|escape| escape.starts_with(letter))
}

/// Fills in `--out-format`'s escapes: `%i`, `%-10n`, `%%`.
pub fn fill(format: &str, fields: &dyn Fields) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let width =
            rest[1..].len() - rest[1..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '\'').len();
        let Some(letter) = rest[1 + width..].chars().next() else { break };
        let whole = 1 + width + letter.len_utf8();
        // Plain digits; an apostrophe each for commas, units of 1000, units of 1024.
        let human = match rest[1..=width].matches('\'').count() {
            0 => u8::MAX,
            n => u8::try_from(n - 1).unwrap_or(2),
        };
        match (letter, fields.field(letter, human)) {
            ('%', _) => out.push(b'%'),
            (_, Some(text)) => pad(&mut out, &text, &rest[1..=width]),
            (_, None) => out.extend_from_slice(&rest.as_bytes()[..whole]),
        }
        rest = &rest[whole..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn pad(out: &mut Vec<u8>, text: &[u8], width: &str) {
    let (left, digits) = (width.starts_with('-'), width.trim_start_matches(['-', '\'']).trim_end_matches('\''));
    let blanks = vec![b' '; digits.parse::<usize>().unwrap_or(0).saturating_sub(text.len())];
    if !left {
        out.extend_from_slice(&blanks);
    }
    out.extend_from_slice(text);
    if left {
        out.extend_from_slice(&blanks);
    }
}

/// How many `-h` there are: 0 shows commas, `u8::MAX` (`--no-h`) plain digits, 1 units of 1000, more units of 1024.
pub fn number(n: u64, human: u8) -> String {
    decimal(n as f64, human, 0)
}

/// A number with `decimals` decimals, in the form that `human` asks for.
pub fn decimal(n: f64, human: u8, decimals: usize) -> String {
    let base = match human {
        0 | u8::MAX => f64::INFINITY,
        1 => 1000.0,
        _ => 1024.0,
    };
    if n >= base {
        let mut value = n / base;
        let mut units = "KMGTPE".chars();
        let mut unit = units.next().unwrap_or('K');
        while value >= base
            && let Some(next) = units.next()
        {
            (value, unit) = (value / base, next);
        }
        return format!("{value:.2}{unit}");
    }
    let plain = format!("{n:.decimals$}");
    if human == u8::MAX {
        return plain;
    }
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(w, f)| (w, Some(f)));
    let groups: Vec<&str> = whole.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    let whole = groups.join(",");
    fraction.map_or(whole.clone(), |f| format!("{whole}.{f}"))
}

/// A name as rsync prints it: what would move the cursor, and what isn't text, as `\#ooo`.
pub fn shown(name: &[u8], raw: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid().as_bytes();
        for (at, b) in valid.iter().enumerate() {
            let looks_escaped = *b == b'\\'
                && valid.get(at + 1) == Some(&b'#')
                && valid.get(at + 2..at + 5).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
            if (*b < 0x20 && *b != b'\t') || *b == 0x7f || looks_escaped {
                out.extend_from_slice(format!("\\#{b:03o}").as_bytes());
            } else {
                out.push(*b);
            }
        }
        for b in chunk.invalid() {
            match raw {
                true => out.push(*b),
                false => out.extend_from_slice(format!("\\#{b:03o}").as_bytes()),
            }
        }
    }
    out
}

/// Permissions as `ls` shows them, without the first letter.
pub fn permissions(mode: u32) -> String {
    let bit = |at: u32, letter: char| if mode & at != 0 { letter } else { '-' };
    let exec = |x: u32, special: u32, both: char, alone: char| match (mode & x != 0, mode & special != 0) {
        (true, true) => both,
        (false, true) => alone,
        (true, false) => 'x',
        (false, false) => '-',
    };
    [
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        exec(0o100, 0o4000, 's', 'S'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        exec(0o010, 0o2000, 's', 'S'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        exec(0o001, 0o1000, 't', 'T'),
    ]
    .iter()
    .collect()
}

/// Bytes a second.
pub fn speed(bytes: f64) -> String {
    let (value, unit) = match bytes / 1024.0 {
        k if k >= 1024.0 * 1024.0 => (k / 1024.0 / 1024.0, "GB/s"),
        k if k >= 1024.0 => (k / 1024.0, "MB/s"),
        k => (k, "kB/s"),
    };
    format!("{value:.2}{unit}")
}

/// Hours, minutes and seconds.
pub fn clock(time: Duration) -> String {
    let secs = time.as_secs();
    format!("{:>4}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_rsync() {
        let all = PreservedAttributes {
            times: true,
            dir_times: true,
            link_times: true,
            perms: true,
            owner: true,
            group: true,
            ..PreservedAttributes::default()
        };
        let same = Difference::default();
        let is = |update, differs, kept: &PreservedAttributes| letters(update, &differs, kept);
        assert_eq!(is(Update::Received, Difference { new: true, ..same }, &all), ">f+++++++++");
        assert_eq!(is(Update::Received, Difference { size: true, mtime: true, ..same }, &all), ">f.st......");
        assert_eq!(
            is(Update::Received, Difference { size: true, ..same }, &PreservedAttributes::default()),
            ">f.sT......"
        );
        assert_eq!(is(Update::None, Difference { perms: true, ..same }, &all), ".f...p.....");
        assert_eq!(is(Update::None, same, &all), ".f         ");
        assert_eq!(is(Update::Tied, same, &all), "hf         ");
        assert_eq!(is(Update::Tied, same, &PreservedAttributes::default()), "hf..T......");
        assert_eq!(is(Update::None, Difference { what: FileType::Dir, mtime: true, ..same }, &all), ".d..t......");
        assert_eq!(is(Update::Local, Difference { what: FileType::Link, mtime: true, ..same }, &all), "cLc.t......");
        assert_eq!(is(Update::Local, Difference { what: FileType::Dir, new: true, ..same }, &all), "cd+++++++++");
        let checksum = PreservedAttributes { checksum: true, ..all };
        assert_eq!(is(Update::Received, Difference { mtime: true, ..same }, &checksum), ">fc.t......");
        assert!(tells(">f         ") && tells(".f...p.....") && !tells(".f         "));
    }

    #[test]
    fn numbers_are_those_of_rsync() {
        for (n, human, text) in [
            (1_234_567, 0, "1,234,567"),
            (12, 0, "12"),
            (1_234_567, u8::MAX, "1234567"),
            (1_234_567, 1, "1.23M"),
            (1_048_576, 2, "1.00M"),
            (999, 1, "999"),
        ] {
            assert_eq!(number(n, human), text);
        }
        assert_eq!(decimal(2538.0, 0, 2), "2,538.00");
    }

    #[test]
    fn names_cannot_draw_on_the_terminal() {
        assert_eq!(shown(b"a\x1bb\n\xc3\xa4\xff\\#123", false), b"a\\#033b\\#012\xc3\xa4\\#377\\#134#123");
        assert_eq!(shown(b"\xff", true), b"\xff");
    }

    #[test]
    fn permissions_are_those_of_ls() {
        assert_eq!(permissions(0o4755), "rwsr-xr-x");
        assert_eq!(permissions(0o1640), "rw-r----T");
    }

    #[test]
    fn formats_are_filled_in() {
        struct One;
        impl Fields for One {
            fn field(&self, letter: char, human: u8) -> Option<Vec<u8>> {
                match letter {
                    'n' => Some(b"x".to_vec()),
                    'l' => Some(number(1_234_567, human).into_bytes()),
                    _ => None,
                }
            }
        }
        assert_eq!(fill("%l %'l %''l %'''l %10'l|", &One), b"1234567 1,234,567 1.23M 1.18M  1,234,567|");
        assert_eq!(fill("a %n|%3n|%-3n|%%|%q|%", &One), b"a x|  x|x  |%|%q|%");
        assert!(asks("%n %i", 'i') && asks("%%%-12i", 'i') && !asks("%%i %n", 'i') && !asks("i", 'i'));
    }
}
