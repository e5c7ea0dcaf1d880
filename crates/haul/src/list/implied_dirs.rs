//! Directories that keys imply: a bucket that holds `a/b/x` holds, as a person sees it, `a/` and `a/b/`.

use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Key, Listed, key};

/// Adds each directory right before the first key below it. Keys come in order, so remembering the last
/// directory is enough; a directory's own marker isn't doubled.
pub fn with_implied_dirs(raw: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
    let mut seen = Vec::new();
    raw.map(move |step| match step {
        Listed::Batch(entries) => Listed::Batch(imply(entries, &mut seen)),
        other => other,
    })
    .boxed()
}

/// `last`: the deepest directory that was returned last.
fn imply(entries: Vec<Entry>, last: &mut Vec<u8>) -> Vec<Entry> {
    let mut out = Vec::with_capacity(entries.len() + 8);
    for entry in entries {
        let dir = if entry.is_dir() { entry.key.as_bytes() } else { key::parent(entry.key.as_bytes()) };
        let shared = common_dir(last, dir);
        let mut at = shared;
        while let Some(len) = dir[at..].iter().position(|b| *b == b'/') {
            at += len + 1;
            if at == dir.len() && entry.is_dir() {
                break;
            }
            out.push(Entry::dir(Key::new(&dir[..at])));
        }
        if entry.is_dir() && dir.len() <= shared {
            // Its marker came after it was implied; it was returned already.
            continue;
        }
        if dir != last.as_slice() {
            last.clear();
            last.extend_from_slice(dir);
        }
        out.push(entry);
    }
    out
}

/// Length of the longest directory path (`""` or ending in `/`) that both start with.
fn common_dir(a: &[u8], b: &[u8]) -> usize {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    a[..same].iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(batches: &[&[&str]]) -> Vec<String> {
        let mut last = Vec::new();
        let entry = |k: &&str| if k.ends_with('/') { Entry::dir(Key::new(k)) } else { Entry::file(Key::new(k), 1) };
        let out = batches.iter().flat_map(|b| imply(b.iter().map(entry).collect(), &mut last));
        out.map(|e| e.key.to_string()).collect()
    }

    #[test]
    fn each_directory_once_before_its_first_key() {
        assert_eq!(
            run(&[&["a", "a/b/x", "a/b/y"], &["a/c", "d//x"]]),
            ["a", "a/", "a/b/", "a/b/x", "a/b/y", "a/c", "d/", "d//", "d//x"]
        );
    }

    #[test]
    fn a_marker_is_not_doubled() {
        assert_eq!(run(&[&["a/", "a/x", "b/c/", "b/c/y"]]), ["a/", "a/x", "b/", "b/c/", "b/c/y"]);
    }

    #[test]
    fn going_back_up_gives_no_directory_again() {
        assert_eq!(
            run(&[&["a/b/x", "a/c"], &["a/d/e/f", "a/d/g"]]),
            ["a/", "a/b/", "a/b/x", "a/c", "a/d/", "a/d/e/", "a/d/e/f", "a/d/g"]
        );
    }
}
