//! `--chmod` and `--chown` as rsync reads them.

use haul_core::policy::Chmod;
use std::{fs::File, io::Read as _};

/// Permission bits with set-uid, set-gid and sticky.
const ALL: u32 = 0o7777;

/// Reads `Du=rwx,go-w,F644`.
///
/// Errors: one line that names the text.
pub fn chmod(text: &str) -> Result<Vec<Chmod>, String> {
    let umask = umask();
    text.split(',')
        .map(|part| one(part, umask).ok_or_else(|| format!("--chmod={text}: {part:?} isn't a mode")))
        .collect()
}

fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(old);
    old.bits()
}

fn one(text: &str, umask: u32) -> Option<Chmod> {
    let (dirs, files, text) = match text.as_bytes().first()? {
        b'D' => (true, false, &text[1..]),
        b'F' => (false, true, &text[1..]),
        _ => (true, true, text),
    };
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let set = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL)?;
        return Some(Chmod { dirs, files, clear: ALL, set, exec_if_any: 0 });
    }
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let mut places = 0;
    for c in who.chars() {
        places |= match c {
            'u' => 0o100,
            'g' => 0o010,
            'o' => 0o001,
            'a' => 0o111,
            _ => return None,
        };
    }
    let (places, mask) = if who.is_empty() { (0o111, !umask) } else { (places, ALL) };
    let (mut bits, mut top, mut exec) = (0, 0, 0);
    for c in rest[1..].chars() {
        match c {
            'r' => bits |= places * 4,
            'w' => bits |= places * 2,
            'x' => bits |= places,
            'X' => exec |= places,
            's' => top |= if places & 0o100 != 0 { 0o4000 } else { 0 } | if places & 0o010 != 0 { 0o2000 } else { 0 },
            't' => top |= 0o1000,
            _ => return None,
        }
    }
    let (bits, exec) = (bits & mask, exec & mask);
    Some(match rest.as_bytes()[0] {
        b'-' => Chmod { dirs, files, clear: bits | exec | top, set: 0, exec_if_any: 0 },
        b'+' => Chmod { dirs, files, clear: 0, set: bits | top, exec_if_any: exec },
        _ => Chmod { dirs, files, clear: places * 7 | top, set: bits | top, exec_if_any: exec },
    })
}

/// Reads `USER:GROUP`, `USER`, `:GROUP`; names or numbers.
///
/// Errors: one line that names whom nobody knows.
pub fn chown(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    Ok((id(user, "/etc/passwd", "user")?, id(group, "/etc/group", "group")?))
}

fn id(name: &str, file: &str, what: &str) -> Result<Option<u32>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let mut text = String::new();
    let read = File::open(file).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|e| format!("--chown: {file}: {e}"))?;
    let mut lines = text.lines().map(|line| line.split(':'));
    let found =
        lines.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten());
    found.map(Some).ok_or_else(|| format!("--chown: there is no {what} {name:?} in {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read() {
        let c = |dirs, files, clear, set, exec_if_any| Chmod { dirs, files, clear, set, exec_if_any };
        for (text, expected) in [
            ("D2755", c(true, false, ALL, 0o2755, 0)),
            ("F644", c(false, true, ALL, 0o644, 0)),
            ("go-w", c(true, true, 0o022, 0, 0)),
            ("u=rwX", c(true, true, 0o700, 0o600, 0o100)),
            ("Dg+s", c(true, false, 0, 0o2000, 0)),
            ("a-x", c(true, true, 0o111, 0, 0)),
            ("o+t", c(true, true, 0, 0o1000, 0)),
        ] {
            assert_eq!(chmod(text), Ok(vec![expected]), "{text}");
        }
        assert_eq!(chmod("u+q").unwrap_err(), "--chmod=u+q: \"u+q\" isn't a mode");
        assert_eq!(chown("0:0"), Ok((Some(0), Some(0))));
        assert_eq!(chown("root"), Ok((Some(0), None)));
        assert_eq!(chown(":nosuchgroup").unwrap_err(), "--chown: there is no group \"nosuchgroup\" in /etc/group");
    }
}
