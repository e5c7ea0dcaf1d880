//! Lists of names, as they are given to be copied: those that dwalk, dcmp and drm of mpiFileUtils write (`--output`, binary, and
//! `--text`), and plain ones, of lines or with NUL between names (`find -print0`). Who calls opens the file.

use std::io::{self, BufRead, Read};

/// Format of mpiFileUtils since 0.9: all numbers are 64-bit big-endian.
const BINARY: u64 = 4;
/// Its older format, in the byte order of the machine.
const OLDER: u64 = 3;
/// Ten numbers follow each path: mode, owner, group, three times, size.
const FACTS: u64 = 10 * 8;
/// Paths are shorter in Linux; a longer field is of something else.
const LONGEST: u64 = 1 << 16;

/// Reads all paths of a list, in its order.
///
/// Errors: one line, without the list's own name; and what `take` answers.
pub fn read(mut list: impl BufRead, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let beginning = list.fill_buf().map_err(words)?;
    let version = beginning.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
    match version {
        Some(BINARY) => return binary(list, take),
        Some(number) if number == OLDER || number.swap_bytes() == OLDER => {
            return Err("a list of an old mpiFileUtils isn't read: write it anew with dwalk --text".into());
        }
        _ => {}
    }
    let end = if beginning.contains(&0) { 0 } else { b'\n' };
    let without_facts = end == b'\n' && is_without_facts(beginning);
    let mut name = Vec::new();
    while list.read_until(end, &mut name).map_err(words)? > 0 {
        if name.last() == Some(&end) {
            name.pop();
        }
        let path = match end {
            _ if without_facts => name.get(..name.len().saturating_sub(2)).unwrap_or_default(),
            0 => &name,
            _ => in_line(&name),
        };
        if !path.is_empty() {
            take(path)?;
        }
        name.clear();
    }
    Ok(())
}

fn words(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the list is cut off".into(),
        _ => error.to_string(),
    }
}

/// dwalk's own format. First how many users and groups are named, and how many bytes each name has, the same of files; then all of
/// them, names filled up with NUL.
fn binary(mut list: impl BufRead, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let mut header = [0; 7 * 8];
    list.read_exact(&mut header).map_err(words)?;
    let number = |at: usize| header[at * 8..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let (files, width) = (number(5), number(6));
    let sizes = [(number(1), number(2)), (number(3), number(4))];
    if [sizes[0].1, sizes[1].1, width].iter().any(|width| *width > LONGEST) {
        return Err("it is no list of mpiFileUtils, though it begins like one".into());
    }
    for (count, width) in sizes {
        let bytes = count.saturating_mul(width + 8);
        let passed = io::copy(&mut list.by_ref().take(bytes), &mut io::sink()).map_err(words)?;
        if passed < bytes {
            return Err("the list is cut off".into());
        }
    }
    let mut record = vec![0; (width + FACTS) as usize];
    for _ in 0..files {
        list.read_exact(&mut record).map_err(words)?;
        let path = &record[..width as usize];
        take(&path[..path.iter().position(|b| *b == 0).unwrap_or(path.len())])?;
    }
    match list.fill_buf().map_err(words)? {
        [] => Ok(()),
        _ => Err("it is no list of mpiFileUtils, though it begins like one".into()),
    }
}

/// dwalk --lite writes lines of a path and a letter for its kind.
fn is_without_facts(beginning: &[u8]) -> bool {
    let end = beginning.iter().rposition(|b| *b == b'\n');
    let mut lines = end.map(|end| &beginning[..end]).unwrap_or_default().split(|b| *b == b'\n');
    lines.all(|line| matches!(line, [.., b'|', b'F' | b'D' | b'L' | b'U']))
}

/// The path in a line: the whole, or what follows mode, user, group, size, unit, month, day, year and time in dwalk's text, or what
/// follows the kind in its text without facts.
fn in_line(line: &[u8]) -> &[u8] {
    if let Some(rest) = line.strip_prefix(b"Type=")
        && let Some([b' ', b'F', b'i', b'l', b'e', b'=', path @ ..]) = rest.get(3..)
    {
        return path;
    }
    let is_mode = |word: &[u8]| {
        word.len() == 10 && b"-dlpsbc".contains(&word[0]) && word[1..].iter().all(|b| b"-rwxsStT".contains(b))
    };
    let mut rest = line;
    for field in 0..9 {
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        if field == 0 && !is_mode(&rest[..end]) {
            return line;
        }
        let after = &rest[end..];
        // A path may begin with a blank.
        let blanks = if field == 8 { 1 } else { after.iter().take_while(|b| **b == b' ').count() };
        rest = after.get(blanks..).unwrap_or_default();
    }
    if rest.is_empty() { line } else { rest }
}

/// A path of a list as a name relative to its folder; `None` for the folder itself. `folder`: the paths by which the folder is known. A
/// path that begins with `./`, or with none of these, is relative already.
///
/// Errors: one line. The path is outside of the folder.
pub fn name_in(path: &[u8], folder: &[&[u8]]) -> Result<Option<Vec<u8>>, String> {
    let below = |above: &&[u8]| match path.strip_prefix(*above) {
        Some(rest) if rest.is_empty() || above.ends_with(b"/") => Some(rest),
        Some([b'/', rest @ ..]) => Some(rest),
        _ => None,
    };
    let below = folder.iter().find_map(below);
    let elsewhere =
        || Err(format!("{}: not below {}", shown(path), folder.first().map(|at| shown(at)).unwrap_or_default()));
    if below.is_none() && path.starts_with(b"/") {
        return elsewhere();
    }
    let parts = below.unwrap_or(path).split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    match parts.contains(&&b".."[..]) {
        true => elsewhere(),
        false => Ok(Some(parts.join(&b'/')).filter(|name| !name.is_empty())),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &[u8]) -> Result<Vec<String>, String> {
        let mut paths = Vec::new();
        read(list, |path| {
            paths.push(String::from_utf8_lossy(path).into_owned());
            Ok(())
        })?;
        Ok(paths)
    }

    /// As `dwalk --output` writes it, by the description in mpiFileUtils' `mfu_flist_io.c`.
    fn binary(paths: &[&str]) -> Vec<u8> {
        let width = paths.iter().map(|path| path.len() + 1).max().unwrap_or(0).next_multiple_of(8);
        let mut list: Vec<u8> =
            [4, 2, 8, 1, 16, paths.len() as u64, width as u64].iter().flat_map(|n| n.to_be_bytes()).collect();
        list.extend([7; 2 * (8 + 8) + 16 + 8]);
        for path in paths {
            list.extend(path.bytes().chain(std::iter::repeat(0)).take(width));
            list.extend([0; 80]);
        }
        list
    }

    #[test]
    fn lists_may_be_of_names_or_of_dwalk() {
        assert_eq!(all(b"a\nb c\n\nd").unwrap(), ["a", "b c", "d"]);
        assert_eq!(all(b"a\nb\0c\0").unwrap(), ["a\nb", "c"]);
        assert_eq!(all(b"").unwrap(), [""; 0]);
        let text = b"-rw-r--r-- ann staff   1.000 KB Jan  2 2026 03:04 /src/a b\ndrwxr-xr-x a b   0.000   B Nov 12 2026 03:04  c\n";
        assert_eq!(all(text).unwrap(), ["/src/a b", " c"]);
        assert_eq!(all(b"-odd name\n-rw-r--r-- only\n").unwrap(), ["-odd name", "-rw-r--r-- only"]);
        assert_eq!(all(b"Type=REG File=/src/a b\nType=DIR File=/src\n").unwrap(), ["/src/a b", "/src"]);
        assert_eq!(all(b"/src|D\n/src/a|b|F\n/src/l|L\n").unwrap(), ["/src", "/src/a|b", "/src/l"]);
        assert_eq!(all(b"a|F\nb\n").unwrap(), ["a|F", "b"], "a name may end so");
        let paths = ["/src", "/src/0123456", "/src/a b"];
        assert_eq!(all(&binary(&paths)).unwrap(), paths);
        assert_eq!(all(&binary(&[])).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let whole = binary(&["/src/a", "/src/b"]);
        for cut in [20, 60, 100, whole.len() - 1] {
            assert_eq!(all(&whole[..cut]).unwrap_err(), "the list is cut off", "{cut}");
        }
        let other = "it is no list of mpiFileUtils, though it begins like one";
        assert_eq!(all(&[&whole[..], b"x"].concat()).unwrap_err(), other);
        let mut wide = whole.clone();
        wide[48] = 1;
        assert_eq!(all(&wide).unwrap_err(), other);
        for older in [3u64.to_be_bytes(), 3u64.to_le_bytes()] {
            let line = "a list of an old mpiFileUtils isn't read: write it anew with dwalk --text";
            assert_eq!(all(&[&older[..], &[0; 64]].concat()).unwrap_err(), line);
        }
    }

    #[test]
    fn names_are_those_in_the_folder() {
        let name = |path: &str| {
            let name = name_in(path.as_bytes(), &[b"src", b"/home/src"]);
            name.map(|name| name.map(|name| String::from_utf8(name).unwrap()))
        };
        for path in ["src/a/b", "/home/src/a/b", "./a/b", "a//b/", "a/./b"] {
            assert_eq!(name(path), Ok(Some("a/b".into())), "{path}");
        }
        assert_eq!([name("src"), name("/home/src/"), name("./")], [Ok(None), Ok(None), Ok(None)]);
        assert_eq!(name("srcx/a"), Ok(Some("srcx/a".into())));
        assert_eq!(name("./src/a"), Ok(Some("src/a".into())));
        for path in ["/home/srcx", "/etc", "src/../a", "../a"] {
            assert_eq!(name(path), Err(format!("{path}: not below src")));
        }
        assert_eq!(name_in(b"/a/b", &[b"/"]), Ok(Some(b"a/b".to_vec())));
    }
}
