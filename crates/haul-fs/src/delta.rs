//! Files from others: what one holds in pieces, and runs of bytes that go from the old file to the new one without passing through
//! anybody.

use super::{Local, content, dir::Dir, error::fail, meta, read};
use haul_core::{
    Error, ErrorKind, Key, Result, Version,
    delta::{Chunking, Cutter, Recipe, Run, SMALLEST_BLOCK},
};
use haul_store::{Part, pieces};
use rustix::{
    fs::{FileType, SeekFrom},
    io::Errno,
};
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{Mutex, PoisonError},
};

/// Bytes of one plain read and write, where the kernel doesn't copy.
const BLOCK: usize = 256 << 10;

/// See [`haul_store::Deltas::recipe`]; runs on the pool.
pub(super) fn recipe(local: &Local, key: &Key, want: Option<&Version>, cut: Chunking) -> Result<Recipe> {
    const OP: &str = "read";
    let cutter = Cutter::new(cut).map_err(|e| e.with_key(key))?;
    let (entry, file) = read::open_regular(local, key, want)?;
    if let Some(known) = entry.version.as_ref().and_then(|version| local.pieces.find(version, cut)) {
        return Ok(known);
    }
    let recipe = pieces::cut(&file, 0..entry.size, cutter, entry.version).map_err(|e| e.with_key(key))?;
    let now = meta::facts(&file, meta::FACTS).map_err(|e| fail(OP, key, e))?;
    if recipe.version != Some(meta::version(&now)) {
        return Err(Error::new(ErrorKind::Changed, OP, "changed while it was read").with_key(key));
    }
    local.pieces.keep(&recipe);
    Ok(recipe)
}

/// The file that takes runs of another one.
pub(super) struct Reusing<'a> {
    pub key: &'a Key,
    pub dir: &'a Dir,
    pub file: &'a File,
    /// Bytes that it will have.
    pub size: u64,
    pub in_place: bool,
    /// Holes stay holes.
    pub sparse: bool,
    /// Runs that were taken already.
    pub reused: &'a Mutex<Option<ReusedBytes>>,
}

/// Bytes of a file that are those of another: the whole is to be proved.
#[derive(Clone)]
pub(super) struct ReusedBytes {
    /// How the two are cut.
    cut: Chunking,
    /// The other file.
    version: Version,
    /// None where they make more than the file: then nothing is known of them.
    runs: Vec<Run>,
    bytes: u64,
}

impl Reusing<'_> {
    /// Remembers that these runs of a file of `size` bytes are there.
    fn note(&self, size: u64, version: &Version, runs: &[Run]) {
        let mut reused = self.reused.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = Chunking::of(size, self.size, SMALLEST_BLOCK);
        let none = || ReusedBytes { cut, version: version.clone(), runs: Vec::new(), bytes: 0 };
        let reused = reused.get_or_insert_with(none);
        reused.bytes = runs.iter().fold(reused.bytes, |bytes, run| bytes.saturating_add(run.size));
        match reused.bytes <= self.size {
            true => reused.runs.extend(runs.iter().filter(|run| run.size > 0)),
            false => reused.runs = Vec::new(),
        }
    }
}

/// See [`haul_store::Upload::reuse`]; runs on the pool.
pub(super) fn reuse(to: &Reusing<'_>, version: &Version, runs: &[Run]) -> Result<Vec<Part>> {
    const OP: &str = "write";
    let error = |kind, why: &str| Error::new(kind, OP, why.to_owned()).with_key(to.key);
    let parts = runs.iter().map(|run| Part { index: run.index, size: run.size, tag: Vec::new() }).collect();
    if to.in_place {
        return match runs.iter().all(|run| run.from == run.offset) {
            true => {
                to.note(to.size, version, runs);
                Ok(parts)
            }
            false => Err(error(ErrorKind::Unsupported, "bytes of a file that is written in place stay where they are")),
        };
    }
    let old = read::open_file(to.dir, to.key.name(), false).map_err(|e| fail(OP, to.key, e))?;
    let st = meta::facts(&old, meta::FACTS).map_err(|e| fail(OP, to.key, e))?;
    if meta::file_type(&st) != FileType::RegularFile || meta::version(&st) != *version {
        return Err(error(ErrorKind::Changed, "the file that it is built from has changed"));
    }
    let old = File::from(old);
    for run in runs {
        if run.from.checked_add(run.size).is_none_or(|end| end > st.stx_size) {
            return Err(error(ErrorKind::Invalid, "the file that it is built from is shorter"));
        }
        let copied = if to.sparse { copy_sparse(&old, to.file, run) } else { copy(&old, to.file, *run) };
        copied.map_err(|errno| fail(OP, to.key, errno))?;
    }
    to.note(st.stx_size, version, runs);
    Ok(parts)
}

/// Copies the data of the old file, and skips its holes.
fn copy_sparse(old: &File, new: &File, run: &Run) -> rustix::io::Result<()> {
    let (mut at, end) = (run.from, run.from + run.size);
    let part = |range: Range<u64>| Run {
        from: range.start,
        offset: run.offset + (range.start - run.from),
        size: range.end - range.start,
        ..*run
    };
    while at < end {
        let data = match rustix::fs::seek(old, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            // It doesn't say where holes are.
            Err(_) => at,
        };
        if at < data {
            let hole = part(at..data);
            if !content::make_zeros(new, hole.offset, hole.size)? {
                copy(old, new, hole)?;
            }
        }
        at = match rustix::fs::seek(old, SeekFrom::Hole(data)) {
            Ok(hole) if hole > data => hole.min(end),
            _ => end,
        };
        if data < at {
            copy(old, new, part(data..at))?;
        }
    }
    Ok(())
}

/// By reflink or inside the kernel, where that can be.
fn copy(old: &File, new: &File, run: Run) -> rustix::io::Result<()> {
    let (mut from, mut to, end) = (run.from, run.offset, run.from + run.size);
    while from < end {
        let left = usize::try_from(end - from).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(old, Some(&mut from), new, Some(&mut to), left) {
            Ok(0) => return Err(Errno::IO),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    let mut block = vec![0; BLOCK.min((end - from) as usize)];
    while from < end {
        let size = block.len().min((end - from) as usize);
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        old.read_exact_at(&mut block[..size], from).map_err(errno)?;
        new.write_all_at(&block[..size], to).map_err(errno)?;
        (from, to) = (from + size as u64, to + size as u64);
    }
    Ok(())
}

/// That a file holds what it is to hold. Gives that in pieces, as it was cut this time and will be the next, as likely as not. What came
/// from the other file in pieces that are remembered isn't cut again: it is proved with the whole.
///
/// Errors: `Corrupt` where it doesn't.
pub(super) fn prove(
    local: &Local,
    (key, file): (&Key, &File),
    size: u64,
    blake3: &[u8],
    reused: &ReusedBytes,
) -> Result<Recipe> {
    let ReusedBytes { cut, version, runs, .. } = reused;
    let known = local.pieces.find(version, *cut).map(|old| old.known(runs)).unwrap_or_default();
    let cutter = Cutter::knowing(*cut, known)?;
    let recipe = pieces::cut(file, 0..size, cutter, None).map_err(|e| e.with_key(key))?;
    if recipe.whole == blake3 {
        return Ok(recipe);
    }
    let why = "what was built from the old file isn't what the source holds";
    Err(Error::new(ErrorKind::Corrupt, "write", why).with_key(key))
}
