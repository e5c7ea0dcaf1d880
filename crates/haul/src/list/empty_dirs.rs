//! Leaving out directories that hold nothing but such directories (`--prune-empty-dirs`).

use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, ErrorKind, Listed, MissedRange};

/// Holds a directory back until something in it comes that is none. As in rsync that is so too where one can't be listed: a
/// directory without anything in it must not take the place of a file. Then nothing is known of the topmost that is held back.
pub fn without_empty_dirs(raw: BoxStream<'static, Listed>) -> BoxStream<'static, Listed> {
    let mut held: Vec<Entry> = Vec::new();
    raw.flat_map(move |step| {
        let steps = match step {
            Listed::Batch(entries) => vec![Listed::Batch(prune(entries, &mut held))],
            Listed::Failed { lost, error } => {
                let from = lost.from.as_bytes();
                held.retain(|dir| from.starts_with(dir.key.as_bytes()));
                match held.first() {
                    // Where another file system begins there is a directory.
                    _ if error.kind() == ErrorKind::Hidden => {
                        vec![Listed::Batch(std::mem::take(&mut held)), Listed::Failed { lost, error }]
                    }
                    Some(dir) => vec![Listed::Failed { lost: MissedRange { from: dir.key.clone(), ..lost }, error }],
                    None => vec![Listed::Failed { lost, error }],
                }
            }
            Listed::Vanished(_) | Listed::End => vec![step],
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
    use haul_core::{Error, Key};

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
            Listed::Failed { lost: MissedRange::inside(&Key::new("g/h/")), error },
            Listed::Batch(entries(&["g/i", "i/"])),
            Listed::Failed {
                lost: MissedRange::inside(&Key::new("i/")),
                error: Error::new(ErrorKind::Hidden, "list", "a mount point"),
            },
            Listed::End,
        ];
        let given = without_empty_dirs(futures::stream::iter(steps).boxed()).collect::<Vec<_>>().await;
        let mut keys = Vec::new();
        for step in &given {
            match step {
                Listed::Batch(entries) => keys.extend(entries.iter().map(|e| e.key.to_string())),
                Listed::Failed { lost, .. } => keys.push(format!("lost from {}", lost.from.as_bytes().escape_ascii())),
                Listed::Vanished(_) => {}
                Listed::End => keys.push("end".into()),
            }
        }
        assert_eq!(keys, ["a-b", "c/", "c/d/", "c/d/x", "lost from g/", "g/", "g/i", "i/", "lost from i/\\x00", "end"]);
    }
}
