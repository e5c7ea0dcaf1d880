//! Deletes: files of a directory as they are listed, directories when they are empty.

use crate::{
    shared::{Held, Sides},
    work::{Done, Found, Raw, Said},
};
use futures::StreamExt as _;
use haul_core::{ErrorKind, Key, Listed, Result};
use haul_store::ListRequest;
use std::mem;

/// Names that are told of, or deleted, at once.
const NAMES: usize = 1024;

/// Looks at a directory that goes: tells of its directories, deletes the rest.
pub async fn look(shared: &Held, root: u16, key: &Key) -> Done {
    let mut done = Done::default();
    let sides = &shared.sides[usize::from(root)];
    let mut listing = sides.dst.list(ListRequest { sweep: true, ..ListRequest::dir(key.as_bytes()) });
    let mut found = Found::default();
    let mut files = Vec::new();
    while let Some(listed) = listing.next().await {
        shared.pulse.step();
        match listed {
            Listed::Batch(entries) => {
                for entry in entries {
                    found.files_seen += 1;
                    match entry.is_dir() {
                        true => found.dirs.push((Raw::from(entry.key.as_bytes()), false)),
                        false => files.push(Raw::from(entry.key.as_bytes())),
                    }
                }
            }
            // It made way already for something else of its name.
            Listed::Failed { error, .. } if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {}
            Listed::Failed { error, .. } => done.problems.push(shared.problem(root, key.as_bytes(), &error)),
            Listed::Vanished(_) | Listed::End => {}
        }
        if files.len() >= NAMES {
            take(&mut done, delete(shared, root, &mem::take(&mut files)).await);
        }
        if found.dirs.len() >= NAMES || done.lines.len() + done.problems.len() >= NAMES {
            let Done { totals, problems, lines, undone, .. } = mem::take(&mut done);
            done.undone = undone;
            shared.say(Said::Found(shared.lease, Found { totals, problems, lines, ..mem::take(&mut found) }));
        }
    }
    shared.say(Said::Found(shared.lease, found));
    take(&mut done, delete(shared, root, &files).await);
    done
}

fn take(done: &mut Done, more: Done) {
    done.totals += more.totals;
    done.problems.extend(more.problems);
    done.lines.extend(more.lines);
    done.undone |= more.undone;
}

/// Deletes files, and directories that are empty.
pub async fn delete(shared: &Held, root: u16, keys: &[Raw]) -> Done {
    let mut done = Done::default();
    let sides = &shared.sides[usize::from(root)];
    shared.pulse.step();
    if !shared.may_go_on() {
        return Done { undone: true, ..done };
    }
    let shown = |key: &[u8]| {
        let top = String::from_utf8_lossy(&shared.job.roots[usize::from(root)].dst).into_owned();
        format!("{}/{}", top.trim_end_matches('/'), String::from_utf8_lossy(Key::new(key).path()))
    };
    if shared.job.dry_run {
        done.lines.extend(keys.iter().map(|key| format!("would be deleted: {}", shown(key))));
        done.totals.deleted += keys.len() as u64;
        return done;
    }
    let answers = sides.dst.delete(keys.iter().map(|key| (Key::new(key), None)).collect()).await;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(()) => {
                done.totals.deleted += 1;
                shared.log("deleted", root, key, 0, None);
                if shared.job.verbose {
                    done.lines.push(format!("deleted: {}", shown(key)));
                }
            }
            Err(error) => {
                let mut problem = shared.problem(root, key, &error);
                problem.line = format!("{}: {}", shown(key), error.message());
                done.problems.push(problem);
            }
        }
    }
    done
}

/// Deletes a directory and all that is in it, where something else takes its name.
pub async fn tree(shared: &Held, sides: &Sides, dir: &Key) -> Result<()> {
    let mut listing = sides.dst.list(ListRequest { prefix: dir.as_bytes().to_vec(), ..ListRequest::all() });
    let mut keys = vec![dir.clone()];
    while let Some(listed) = listing.next().await {
        shared.check()?;
        match listed {
            Listed::Batch(entries) => keys.extend(entries.into_iter().map(|entry| entry.key)),
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    let (mut dirs, files): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(Key::is_dir);
    for files in files.chunks(NAMES) {
        shared.check()?;
        for answer in sides.dst.delete(files.iter().map(|key| (key.clone(), None)).collect()).await {
            answer?;
        }
    }
    dirs.sort_by(|a, b| b.cmp(a));
    for dir in dirs {
        shared.check()?;
        for answer in sides.dst.delete(vec![(dir, None)]).await {
            answer?;
        }
    }
    Ok(())
}
