//! A file cut into pieces: one thread reads it and hashes the whole, another cuts it. Blocks the thread: see [`crate::disk`].

use crate::blocks;
use haul_core::{
    Algo, Error, ErrorKind, Hasher, Hashes, Result, Version,
    delta::{Cutter, Recipe},
};
use std::{
    fs::File,
    ops::Range,
    sync::mpsc::{channel, sync_channel},
    thread,
};

/// Blocks that were read and wait to be cut.
const AHEAD: usize = 4;

/// Smaller files aren't worth a second thread, in bytes.
const LARGE: u64 = 2 << 20;

/// Cuts a range of a file, which `version` names.
///
/// Errors: `Invalid` for more pieces than anybody asks for; those of [`blocks::read`].
pub fn cut(file: &File, range: Range<u64>, mut cutter: Cutter, version: Option<Version>) -> Result<Recipe> {
    let size = range.end - range.start;
    if !cutter.cut().suits(size) {
        return Err(Error::new(ErrorKind::Invalid, "read", "it would have too many pieces"));
    }
    let beside = (size >= LARGE).then(|| side_by_side(file, range.clone(), &mut cutter)).flatten();
    let hashes = match beside {
        Some(hashes) => hashes?,
        None => {
            let mut whole = Hasher::new(&[Algo::Blake3]);
            blocks::read(file, range, |block| {
                whole.update(block);
                cutter.update(block);
            })?;
            whole.finish()
        }
    };
    Ok(cutter.finish(version, hashes.get(Algo::Blake3).unwrap_or_default().to_vec()))
}

/// Uses two threads; `None` where no second one can be started, before anything was cut.
fn side_by_side(file: &File, range: Range<u64>, cutter: &mut Cutter) -> Option<Result<Hashes>> {
    let (full, blocks) = sync_channel::<Vec<u8>>(AHEAD);
    let (empty, empties) = channel::<Vec<u8>>();
    let read = move || {
        let mut whole = Hasher::new(&[Algo::Blake3]);
        blocks::read(file, range, |block| {
            whole.update(block);
            let mut copy = empties.try_recv().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(block);
            // Who cuts is there until the end.
            let _ = full.send(copy);
        })?;
        Ok(whole.finish())
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().spawn_scoped(scope, read).ok()?;
        for block in blocks {
            cutter.update(&block);
            let _ = empty.send(block);
        }
        Some(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
