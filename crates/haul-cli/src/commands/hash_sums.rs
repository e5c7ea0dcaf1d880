//! Hashes of a path's files, and checking them against a file of hashes: `checksum`, `hashsum --checkfile`.

use super::{
    file_lists::{Lists, Writers},
    listing::{Failures, Source, depth, open_file},
};
use crate::{
    context::Context,
    error::{CommandResult, code, usage},
};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt;
use haul::{ListOptions, check::CheckResult, index::FileHashes, pipe};
use haul_core::{Algo, Entry, Error, Key, hash};
use haul_store::Store;
use std::{collections::BTreeMap, ffi::OsStr, sync::Arc};

/// A file of hashes larger than this is no file of hashes.
const LARGEST: u64 = 1 << 30;

/// A file and its hash, where the store knows it.
pub type FileHash = Result<(Entry, Option<Vec<u8>>), Error>;

/// Hashes of entries, several at once, in their order. `kept` saves reading what was hashed before, unless `download`.
pub fn hashes(
    source: &Source,
    entries: futures::stream::BoxStream<'static, Result<Entry, Error>>,
    algo: Algo,
    download: bool,
    kept: Option<Arc<FileHashes>>,
) -> futures::stream::BoxStream<'static, FileHash> {
    let store: Arc<dyn Store> = source.store.clone();
    let sums = entries.map(move |entry| {
        let (store, kept) = (store.clone(), kept.clone());
        async move {
            let entry = entry?;
            let value = haul::hash::of(kept.as_deref(), &store, &entry, algo, download).await?;
            Ok((entry, value))
        }
    });
    sums.buffered(source.checkers.max(1)).boxed()
}

/// How to check files against hashes.
#[derive(Default)]
pub struct SumsOptions<'a> {
    /// Read the files, whatever the store says of them.
    pub download: bool,
    /// A file without a hash is no difference.
    pub one_way: bool,
    /// Where to write which files are how.
    pub lists: Option<&'a Lists>,
}

/// Compares the files of `path` with the hashes in `file`; says each difference in one line. Exit code 1 if there is one. What the filter
/// excludes isn't missed.
pub async fn check(
    algo: Algo,
    path: &OsStr,
    file: &OsStr,
    how: SumsOptions<'_>,
    ctx: &Context,
) -> Result<CommandResult> {
    let mut expected = parse(algo, &content(file, ctx).await?)?;
    let source = Source::open(ctx, path).await?;
    let mut lists = how.lists.map(Writers::open).transpose()?;
    let mut note = |found: CheckResult, key: &Key| match &mut lists {
        Some(lists) => lists.write(found, key).context("can't write the list of files"),
        None => Ok(()),
    };
    let entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let mut sums = hashes(&source, entries, algo, how.download, ctx.known().hashes);
    let (mut failures, mut same, mut differ) = (Failures::default(), 0u64, 0u64);
    while let Some(sum) = sums.next().await {
        let (entry, value) = match sum {
            Ok(sum) => sum,
            Err(error) => {
                if let Some(key) = error.key().filter(|key| !key.is_root() && !key.is_dir()) {
                    expected.remove(key.stored());
                    note(CheckResult::Error, key)?;
                }
                failures.add(error);
                continue;
            }
        };
        let problem = match (expected.remove(entry.key.stored()), value) {
            (None, _) if how.one_way => continue,
            (None, _) => Some((CheckResult::MissingAtSrc, "sum not found")),
            (Some(_), None) => Some((CheckResult::Error, "the store has no hash of it: use --download")),
            (Some(wanted), Some(value)) if wanted != value => Some((CheckResult::Differs, "files differ")),
            _ => None,
        };
        match problem {
            Some((_, problem)) => tracing::error!("{}: {problem}", entry.key),
            None => tracing::info!("{}: OK", entry.key),
        }
        note(problem.map_or(CheckResult::Same, |(found, _)| found), &entry.key)?;
        if problem.is_some() { differ += 1 } else { same += 1 }
    }
    let excluded = |key: &Key| !source.filter.wants_name(&Entry::file(key.clone(), 0));
    for key in expected.keys().map(Key::of_stored).filter(|key| !excluded(key)) {
        tracing::error!("{key}: file not found");
        note(CheckResult::MissingAtDst, &key)?;
        differ += 1;
    }
    let place = source.store.locator();
    tracing::warn!("{place}: {differ} differences found");
    tracing::warn!("{place}: {same} matching files");
    lists.map_or(Ok(()), Writers::finish)?;
    failures.finish()?;
    Ok(if differ > 0 { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}

async fn content(file: &OsStr, ctx: &Context) -> Result<Vec<u8>> {
    let (store, Some(key)) = open_file(ctx, file).await? else {
        return Err(usage(format!("{}: it is a directory, not a file of hashes", crate::journal::shown_path(file))));
    };
    let entry = store.stat(&key).await?;
    if entry.size > LARGEST {
        bail!("{key}: it is too large for a file of hashes");
    }
    let mut pieces = pipe::read(&store, &entry, None).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

/// Lines `HASH  NAME`, `HASH *NAME` or `ALGORITHM (NAME) = HASH`, all of them with a backslash before them where the name is escaped, as
/// the GNU tools write them; empty lines and those that start with `#` don't count.
fn parse(algo: Algo, text: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut sums = BTreeMap::new();
    for (at, line) in text.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            continue;
        }
        let Some((value, name)) = read(algo, line) else {
            bail!("line {} of the file of hashes isn't a {algo} hash and a name", at + 1);
        };
        if sums.get(&name).is_some_and(|before| *before != value) {
            let name = String::from_utf8_lossy(&name).into_owned();
            bail!("line {} of the file of hashes has another {algo} hash of {name} than a line before", at + 1);
        }
        sums.insert(name, value);
    }
    if sums.is_empty() {
        bail!("the file of hashes has no line with a {algo} hash and a name");
    }
    Ok(sums)
}

fn read(algo: Algo, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let escaped = line.strip_prefix(b"\\");
    let line = escaped.unwrap_or(line);
    let (value, name) = plain(line).filter(|(value, _)| value.len() == algo.size()).or_else(|| tagged(algo, line))?;
    // As `find . -type f -exec md5sum {} +` has it.
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let name = if escaped.is_some() { unescape(name)? } else { name.to_vec() };
    (value.len() == algo.size() && !name.is_empty()).then_some((value, name))
}

fn plain(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let at = line.iter().position(|b| *b == b' ')?;
    let value = hash::from_hex(std::str::from_utf8(&line[..at]).ok()?)?;
    let name = &line[at + 1..];
    Some((value, name.strip_prefix(b" ").or_else(|| name.strip_prefix(b"*")).unwrap_or(name)))
}

fn tagged(algo: Algo, line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    const BETWEEN: &[u8] = b") = ";
    let open = line.windows(2).position(|two| two == b" (")?;
    let close = line.windows(BETWEEN.len()).rposition(|four| four == BETWEEN).filter(|close| *close > open)?;
    let letters = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
    let tag = std::str::from_utf8(&line[..open]).ok()?;
    let value = hash::from_hex(std::str::from_utf8(&line[close + BETWEEN.len()..]).ok()?)?;
    (letters(tag) == letters(&algo.to_string())).then_some((value, &line[open + 2..close]))
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut bytes) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(plain)
}

/// The name of a line, escaped where it would break it: such a line begins with a backslash.
pub fn escaped(name: &[u8]) -> Option<Vec<u8>> {
    if !name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return None;
    }
    let escape = |byte: &u8| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\\' => b"\\\\".to_vec(),
        byte => vec![*byte],
    };
    Some(name.iter().flat_map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_hashes() {
        let sums = parse(Algo::Crc32, b"00000001  a b\n\n# no\n000000ff *./c\r\n0000000A d\n").unwrap();
        let want = [("a b", 1u8), ("c", 255), ("d", 10)].map(|(k, v)| (k.as_bytes().to_vec(), vec![0, 0, 0, v]));
        assert_eq!(sums, want.into());
        for (text, line) in [
            ("00000001  a\n01  b", 2),
            ("x", 1),
            ("00000001  ", 1),
            ("\\00000001  a\\tb", 1),
            ("\\00000001  a\\", 1),
            ("MD5 (a) = 00000001", 1),
            ("CRC32 () = 00000001", 1),
            ("CRC32 (a) = 01", 1),
        ] {
            let message = parse(Algo::Crc32, text.as_bytes()).unwrap_err().to_string();
            assert_eq!(message, format!("line {line} of the file of hashes isn't a crc32 hash and a name"));
        }
        // Several lists in one: twice the same is once.
        let twice = parse(Algo::Crc32, b"00000001  a\n00000001  a\n").unwrap();
        assert_eq!(twice.len(), 1);
        let message = parse(Algo::Crc32, b"00000001  a\n00000002  a\n").unwrap_err().to_string();
        assert_eq!(message, "line 2 of the file of hashes has another crc32 hash of a than a line before");
    }

    #[test]
    fn tags_and_escapes_are_those_of_the_gnu_tools() {
        let text =
            b"\\00000001  a\\n\\\\\\r\n00000002  a\\nb\nCRC32 (a (b) = c) = 00000003\n\\crc-32 (\\n) = 00000004\n";
        let want = [("a\n\\\r", 1u8), ("a\\nb", 2), ("a (b) = c", 3), ("\n", 4)];
        assert_eq!(
            parse(Algo::Crc32, text).unwrap(),
            want.map(|(k, v)| (k.as_bytes().to_vec(), vec![0, 0, 0, v])).into()
        );
        for name in ["a\nb", "\\\r"] {
            let line = [b"\\00000001  ", &*escaped(name.as_bytes()).unwrap()].concat();
            assert_eq!(parse(Algo::Crc32, &line).unwrap().keys().next().unwrap(), name.as_bytes());
        }
        assert_eq!(escaped(b"a\\b"), None);
    }
}
