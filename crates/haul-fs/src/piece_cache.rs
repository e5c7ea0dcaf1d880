//! Pieces of files that this machine's haul read or wrote: one file each in the state folder, named
//! by the version of the file (device, inode, size and times) and how it is cut. They save reading the file again. A file is read
//! once its times show every later change (`haul-store/recent_change.rs`); a file built from remembered pieces is verified all the same.

#![allow(clippy::disallowed_methods)] // The state folder's own files.

use haul_core::{
    Algo, Version,
    delta::{Chunking, Recipe},
    hash::{hash_bytes, to_hex},
};
use std::{
    fs,
    io::Result,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Most files that are remembered, the latest …
const MOST: usize = 1000;
/// … as long as they take at most this many bytes: those of 64 GiB in the smallest blocks.
const BYTES: u64 = 256 << 20;

/// The folder; `None` where nothing is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct PieceCache(pub Option<PathBuf>);

impl PieceCache {
    /// The pieces of this version.
    pub(super) fn find(&self, version: &Version, cut: Chunking) -> Option<Recipe> {
        let bytes = fs::read(self.0.as_ref()?.join(name(version, cut))).ok()?;
        let recipe: Recipe = rmp_serde::from_slice(&bytes).ok()?;
        let same = recipe.version.as_ref() == Some(version) && recipe.cut == cut;
        (same && recipe.check().is_ok()).then_some(recipe)
    }

    /// Remembers them. Where that can't be, the file is read the next time.
    pub(super) fn keep(&self, recipe: &Recipe) {
        let (Some(folder), Some(version)) = (&self.0, &recipe.version) else { return };
        if let Err(error) = keep(folder, &name(version, recipe.cut), recipe) {
            tracing::debug!(%error, "pieces of a file can't be remembered");
        }
    }
}

fn name(version: &Version, cut: Chunking) -> String {
    let cut = match cut {
        Chunking::Blocks(size) => format!("b{size}"),
        Chunking::Content(size) => format!("c{size}"),
    };
    let hashes = hash_bytes(&[Algo::Blake3], &version.0);
    format!("{}-{cut}", hashes.get(Algo::Blake3).map(|hash| to_hex(&hash[..16])).unwrap_or_default())
}

fn keep(folder: &Path, name: &str, recipe: &Recipe) -> Result<()> {
    let bytes = rmp_serde::to_vec_named(recipe).map_err(std::io::Error::other)?;
    fs::create_dir_all(folder)?;
    let new = folder.join(format!("{name}.{}", std::process::id()));
    fs::write(&new, &bytes)?;
    fs::rename(&new, folder.join(name))?;
    forget(folder)
}

/// Removes the oldest where there are too many.
fn forget(folder: &Path) -> Result<()> {
    let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        // One that another haul removes meanwhile is none.
        let (path, Ok(facts)) = entry.map(|entry| (entry.path(), entry.metadata()))? else { continue };
        all.push((facts.modified()?, facts.len(), path));
    }
    all.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (number, (_, size, path)) in all.iter().enumerate() {
        bytes += size;
        if number >= MOST || bytes > BYTES {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::delta::Cutter;

    fn recipe(version: &[u8], cut: Chunking, bytes: &[u8]) -> Recipe {
        let mut cutter = Cutter::new(cut).unwrap();
        cutter.update(bytes);
        let whole = hash_bytes(&[Algo::Blake3], bytes).get(Algo::Blake3).unwrap().to_vec();
        cutter.finish(Some(Version::new(version)), whole)
    }

    #[test]
    fn what_is_kept_is_found_by_its_version_and_cut() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = PieceCache(Some(folder.path().join("pieces")));
        let (blocks, content) = (Chunking::Blocks(16 << 10), Chunking::Content(16 << 10));
        let kept = recipe(b"v1", blocks, &[1; 100_000]);
        remembered.keep(&kept);
        assert_eq!(remembered.find(&Version::new(b"v1"), blocks), Some(kept));
        assert_eq!(remembered.find(&Version::new(b"v1"), content), None);
        assert_eq!(remembered.find(&Version::new(b"v2"), blocks), None);
        // Damaged, or of another version under this name.
        let path = folder.path().join("pieces").join(name(&Version::new(b"v1"), blocks));
        fs::write(&path, rmp_serde::to_vec_named(&recipe(b"v2", blocks, b"x")).unwrap()).unwrap();
        assert_eq!(remembered.find(&Version::new(b"v1"), blocks), None);
        fs::write(&path, b"?").unwrap();
        assert_eq!(remembered.find(&Version::new(b"v1"), blocks), None);
        PieceCache(None).keep(&recipe(b"v1", blocks, b"x"));
        assert_eq!(PieceCache(None).find(&Version::new(b"v1"), blocks), None);
    }

    #[test]
    fn only_so_many_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST + 5 {
            fs::write(folder.path().join(number.to_string()), b"x").unwrap();
        }
        forget(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST);
        fs::File::create(folder.path().join("large")).unwrap().set_len(BYTES + 1).unwrap();
        forget(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the latest is too large, and so is all behind it");
    }
}
