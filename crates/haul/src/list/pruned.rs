//! Leaving out directories that hold nothing but such directories (rsync's `--prune-empty-dirs`).

use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Listed};

/// Holds a directory back until something in it comes that is none. A range that could not be listed may hold something.
pub fn without_empty_dirs(raw: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
    let mut held: Vec<Entry> = Vec::new();
    raw.flat_map(move |step| {
        let steps = match step {
            Listed::Batch(entries) => vec![Listed::Batch(prune(entries, &mut held))],
            // After what it is in, before what it holds.
            Listed::Failed { lost, error } => {
                let from = lost.from.as_bytes();
                held.retain(|dir| from.starts_with(dir.key.as_bytes()));
                vec![Listed::Batch(std::mem::take(&mut held)), Listed::Failed { lost, error }]
            }
            Listed::End => vec![Listed::End],
        };
        futures::stream::iter(steps)
    })
    .boxed()
}

/// `held`: the directories on the way to the last key that hold nothing so far.
fn prune(entries: Vec<Entry>, held: &mut Vec<Entry>) -> Vec<Entry> {
    let mut out = Vec::with_capacity(entries.len());
    for entry in entries {
        held.retain(|dir| entry.key.as_bytes().starts_with(dir.key.as_bytes()));
        if entry.is_dir() {
            held.push(entry);
        } else {
            out.append(held);
            out.push(entry);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Error, ErrorKind, Key, Lost};

    fn entries(keys: &[&str]) -> Vec<Entry> {
        keys.iter()
            .map(|k| if k.ends_with('/') { Entry::dir(Key::new(k)) } else { Entry::file(Key::new(k), 1) })
            .collect()
    }

    #[tokio::test]
    async fn only_directories_on_the_way_to_something_come() {
        let error = Error::new(ErrorKind::Denied, "list", "no");
        let steps = vec![
            Listed::Batch(entries(&["a/", "a/b/", "a-b", "c/", "c/d/"])),
            Listed::Batch(entries(&["c/d/x", "c/e/", "f/", "g/", "g/h/"])),
            Listed::Failed { lost: Lost::below(&Key::new("g/h/")), error },
            Listed::Batch(entries(&["i/"])),
            Listed::End,
        ];
        let given = without_empty_dirs(futures::stream::iter(steps).boxed()).collect::<Vec<_>>().await;
        let mut keys = Vec::new();
        for step in &given {
            match step {
                Listed::Batch(entries) => keys.extend(entries.iter().map(|e| e.key.to_string())),
                Listed::Failed { .. } => keys.push("lost".into()),
                Listed::End => keys.push("end".into()),
            }
        }
        assert_eq!(keys, ["a-b", "c/", "c/d/", "c/d/x", "g/", "g/h/", "lost", "end"]);
    }
}
