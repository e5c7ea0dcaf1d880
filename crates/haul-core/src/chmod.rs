//! Changes of permission bits, and the grammar of `--chmod`, which is rsync's. Clauses separated by commas, each with an optional `D`
//! (directories) or `F` (all else), then an octal number, or classes (`ugoa`), `+`, `-` or `=`, and permissions
//! (`rwxXst`, or one of `ugo`: the bits of that class).

use serde::{Deserialize, Serialize};

/// Permission bits, with set-id and sticky.
pub const MODE_BITS: u32 = 0o7777;

/// One change of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chmod {
    /// Applies to directories.
    pub dirs: bool,
    /// Applies to all but directories.
    pub files: bool,
    /// Bits to clear, then
    pub clear: u32,
    /// bits that are set.
    pub set: u32,
    /// Execute bits (of `0o111`) that are set where the file is a directory or has one of them already (`X`).
    pub exec_if_any: u32,
    /// Bits of one class are granted to others, or taken from them (`g=u`, `go-u`).
    pub copied: Option<CopiedPermissions>,
}

/// Permissions that go by those of one class: user, group or others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedPermissions {
    /// How far the three bits of that class are shifted: 6, 3 or 0.
    pub from: u32,
    /// Bits of the classes that gain or lose them.
    pub to: u32,
    /// They lose what that class has.
    pub taken: bool,
}

impl Chmod {
    /// `bits` after this change. `executable`: of a directory, or of a file that had an execute bit before all changes.
    pub fn apply(&self, bits: u32, executable: bool) -> u32 {
        let more = if executable { self.exec_if_any } else { 0 };
        // The class's bits are read before any bit is cleared.
        let (given, taken) = match self.copied {
            Some(copied) => match (((bits >> copied.from) & 7) * 0o111) & copied.to {
                had if copied.taken => (0, had),
                had => (had, 0),
            },
            None => (0, 0),
        };
        (bits & !self.clear & !taken) | self.set | more | given
    }
}

/// Parses a list of changes. Where no class is named (`+w`), `umask` masks the bits, as chmod(1) does.
///
/// Errors: the problem, with the clause.
pub fn parse(text: &str, umask: u32) -> Result<Vec<Chmod>, String> {
    text.split(',').map(|piece| one(piece, umask).ok_or_else(|| wrong(piece))).collect()
}

fn wrong(piece: &str) -> String {
    format!(
        "{piece:?} isn't a change of permissions: write 644, u+w, go-rwx, D755, F644 or Du=rwx, with commas between"
    )
}

fn one(piece: &str, umask: u32) -> Option<Chmod> {
    let (dirs, files, rest) = match piece.as_bytes().first()? {
        b'D' => (true, false, &piece[1..]),
        b'F' => (false, true, &piece[1..]),
        _ => (true, true, piece),
    };
    let of = |clear, set, exec_if_any| Some(Chmod { dirs, files, clear, set, exec_if_any, copied: None });
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u32::from_str_radix(rest, 8).ok().filter(|bits| *bits <= MODE_BITS)?;
        return of(MODE_BITS, bits, 0);
    }
    let at = rest.find(['+', '-', '='])?;
    let (who, op, which) = (&rest[..at], rest.as_bytes()[at], &rest[at + 1..]);
    let who = Who::read(who)?;
    if let Some(from) = class(which) {
        let to = (who.each * 7) & if who.named { MODE_BITS } else { !umask };
        let copied = Some(CopiedPermissions { from, to, taken: op == b'-' });
        // A class that copies another one's bits keeps none of its own.
        let own = who.set_id | if who.named && who.each & 1 != 0 { 0o1000 } else { 0 };
        let clear = if op == b'=' { (who.each * 7) | own } else { 0 };
        return Some(Chmod { dirs, files, clear, set: 0, exec_if_any: 0, copied });
    }
    let bits = which.chars().try_fold(Bits::default(), |bits, c| bits.with(c, &who))?;
    let mask = if who.named { MODE_BITS } else { !umask };
    let plain = (who.each * bits.each) & mask;
    let if_any = if bits.exec_if_any { who.each & mask } else { 0 };
    match op {
        b'+' => of(0, plain | bits.top, if_any),
        b'-' => of(plain | bits.top | if_any, 0, 0),
        // Set-id bits of the named classes are cleared only where they are named as well.
        _ => {
            let top = if who.named { bits.top } else { 0 };
            of((who.each * 7) | top, plain | bits.top, if_any)
        }
    }
}

/// Where the bits of a class stand that permissions are copied from.
fn class(which: &str) -> Option<u32> {
    ["o", "g", "u"].iter().position(|class| *class == which).map(|at| at as u32 * 3)
}

struct Who {
    /// One bit for each: 0o100, 0o010, 0o001.
    each: u32,
    /// Set-id bits of those named.
    set_id: u32,
    named: bool,
}

impl Who {
    fn read(text: &str) -> Option<Who> {
        let mut who = Who { each: 0, set_id: 0, named: !text.is_empty() };
        for c in text.chars() {
            let (each, set_id) = match c {
                'u' => (0o100, 0o4000),
                'g' => (0o010, 0o2000),
                'o' => (0o001, 0),
                'a' => (0o111, 0o6000),
                _ => return None,
            };
            who.each |= each;
            who.set_id |= set_id;
        }
        if !who.named {
            who.each = 0o111;
        }
        Some(who)
    }
}

#[derive(Default)]
struct Bits {
    /// For one of user, group and others: 0 to 7.
    each: u32,
    top: u32,
    exec_if_any: bool,
}

impl Bits {
    fn with(mut self, c: char, who: &Who) -> Option<Bits> {
        match c {
            'r' => self.each |= 4,
            'w' => self.each |= 2,
            'x' => self.each |= 1,
            'X' => self.exec_if_any = true,
            // Without user or group it is the user's, as rsync has it.
            's' => self.top |= if who.set_id == 0 { 0o4000 } else { who.set_id },
            't' => self.top |= 0o1000,
            _ => return None,
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(text: &str) -> Vec<(bool, bool, u32, u32, u32)> {
        let all = parse(text, 0o022).unwrap();
        all.iter().map(|c| (c.dirs, c.files, c.clear, c.set, c.exec_if_any)).collect()
    }

    #[test]
    fn rsyncs_examples_are_read() {
        assert_eq!(say("644"), [(true, true, 0o7777, 0o644, 0)]);
        assert_eq!(say("D755,F644"), [(true, false, 0o7777, 0o755, 0), (false, true, 0o7777, 0o644, 0)]);
        assert_eq!(say("u+w"), [(true, true, 0, 0o200, 0)]);
        assert_eq!(say("go-rwx"), [(true, true, 0o077, 0, 0)]);
        assert_eq!(
            say("Du=rwx,Dg=rx,Do=,Fu=rw"),
            [
                (true, false, 0o700, 0o700, 0),
                (true, false, 0o070, 0o050, 0),
                (true, false, 0o007, 0, 0),
                (false, true, 0o700, 0o600, 0)
            ]
        );
        assert_eq!(say("Dg+s,ug+w,Fo-w,+X")[0], (true, false, 0, 0o2000, 0));
        assert_eq!(say("a+X"), [(true, true, 0, 0, 0o111)]);
        assert_eq!(say("u+st"), [(true, true, 0, 0o5000, 0)]);
        assert_eq!(say("u-X"), [(true, true, 0o100, 0, 0)]);
    }

    #[test]
    fn the_umask_applies_where_no_class_is_named() {
        assert_eq!(say("+w"), [(true, true, 0, 0o200, 0)]);
        assert_eq!(say("a+w"), [(true, true, 0, 0o222, 0)]);
        assert_eq!(say("=rw"), [(true, true, 0o777, 0o644, 0)]);
    }

    #[test]
    fn what_a_class_has_is_given_to_others_or_taken() {
        let after =
            |text: &str, mode: u32| parse(text, 0o022).unwrap().iter().fold(mode, |m, c| c.apply(m, mode & 0o111 != 0));
        for (text, mode, want) in [
            ("g=u", 0o640, 0o660),
            ("go=u", 0o4751, 0o4777),
            ("u-o", 0o755, 0o255),
            ("o+g", 0o651, 0o655),
            ("u=u", 0o640, 0o640),
            ("u=g", 0o4755, 0o555),
            ("g=u", 0o2755, 0o775),
            ("o=u", 0o1750, 0o757),
            ("a=g", 0o753, 0o555),
            ("=u", 0o700, 0o755),
            ("g-g,o=g", 0o777, 0o700),
        ] {
            assert_eq!(after(text, mode), want, "{text} of {mode:o}");
        }
        assert_eq!(after("a+s", 0o755), 0o6755);
        assert_eq!(after("a-s", 0o6755), 0o755);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for bad in ["", "u", "8", "77777", "u+q", "Z644", "u+w,", "D", "DF644", "u+w-x", "644x", "g=uo", "g=ur"] {
            assert!(parse(bad, 0).is_err(), "{bad:?}");
        }
        assert_eq!(
            parse("u+q", 0).unwrap_err(),
            "\"u+q\" isn't a change of permissions: write 644, u+w, go-rwx, D755, F644 or Du=rwx, with commas between"
        );
    }
}
