//! Trees to copy: names, sizes, times, links and empty folders that tend to break copying programs, the same for the
//! same seed.

use crate::chance::Chance;
use haul_core::Mtime;
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a tree should have.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of files.
    pub files: usize,
    /// Number of folders (some stay empty).
    pub dirs: usize,
    /// Largest file in bytes.
    pub largest: u64,
    /// Sizes are also taken from just below, at and just above multiples of this many bytes.
    pub edge: u64,
    /// Number of symbolic links: to files, to folders, to nothing.
    pub links: usize,
    /// Use names with spaces, signs, newlines and emoji.
    pub odd_names: bool,
    /// Use names that aren't valid text too.
    pub raw_names: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { files: 60, dirs: 20, largest: 200_000, edge: 64 << 10, links: 6, odd_names: true, raw_names: false }
    }
}

/// A tree as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Folders, each after the one that holds it, without a `/` at the end.
    pub dirs: Vec<Vec<u8>>,
    /// Files.
    pub files: Vec<File>,
    /// Links: name, target.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path below the root.
    pub key: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Mtime,
    /// Makes the content.
    pub seed: u64,
}

impl File {
    /// Its bytes.
    pub fn content(&self) -> Vec<u8> {
        content(self.seed, self.size)
    }
}

/// Bytes that hardly compress and differ from seed to seed.
pub fn content(seed: u64, size: u64) -> Vec<u8> {
    let mut dice = Chance(seed);
    let mut bytes = Vec::with_capacity(size as usize + 8);
    while (bytes.len() as u64) < size {
        bytes.extend_from_slice(&dice.next().to_le_bytes());
    }
    bytes.truncate(size as usize);
    bytes
}

const ODD: [&str; 16] = [
    "with space",
    " lead",
    "trail ",
    "100%",
    "a+b",
    "what?",
    "#1",
    "new\nline",
    "\u{1F69A}",
    "ümlaut",
    "a-b",
    "a",
    "a0",
    "back\\slash",
    "star*[x]",
    "%2F",
];

impl Tree {
    /// The tree of this seed.
    pub fn new(seed: u64, shape: &Shape) -> Self {
        let mut dice = Chance(seed);
        let mut dirs: Vec<Vec<u8>> = Vec::new();
        for number in 0..shape.dirs {
            let parent = if dirs.is_empty() { None } else { dirs.get(dice.below(dirs.len() * 2)).cloned() };
            dirs.push(join(parent.as_deref(), &name(&mut dice, shape, "d", number)));
        }
        let mut files = Vec::new();
        for number in 0..shape.files {
            // The last fifth of the folders gets no file.
            let parent = dirs.get(dice.below((dirs.len() * 4 / 5).max(1) + 2)).filter(|_| dice.below(5) > 0).cloned();
            let key = join(parent.as_deref(), &name(&mut dice, shape, "f", number));
            let (size, mtime) = (size(&mut dice, shape), mtime(&mut dice));
            files.push(File { key, size, mtime, seed: dice.next() });
        }
        let links = (0..shape.links).map(|number| {
            let target = match number % 3 {
                0 => files.get(dice.below(files.len())).map(|file| file.key.clone()),
                1 => dirs.get(dice.below(dirs.len())).cloned(),
                _ => None,
            };
            (format!("link{number}").into_bytes(), target.unwrap_or_else(|| b"no such file".to_vec()))
        });
        Tree { links: links.collect(), dirs, files }
    }

    /// Makes it below `root`, which is created. Times are set on files, then on folders.
    pub fn write_to(&self, root: &Path) -> io::Result<()> {
        let at = |key: &[u8]| root.join(OsStr::from_bytes(key));
        fs::create_dir_all(root)?;
        for dir in &self.dirs {
            fs::create_dir_all(at(dir))?;
        }
        for file in &self.files {
            let path = at(&file.key);
            fs::write(&path, file.content())?;
            fs::File::options().write(true).open(&path)?.set_modified(system_time(file.mtime))?;
        }
        for (name, target) in &self.links {
            symlink(OsStr::from_bytes(target), at(name))?;
        }
        Ok(())
    }
}

fn system_time(t: Mtime) -> SystemTime {
    let distance = Duration::from_nanos(u64::try_from(t.distance(Mtime(0))).unwrap_or(u64::MAX));
    if t.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

fn join(parent: Option<&[u8]>, name: &[u8]) -> Vec<u8> {
    match parent {
        Some(parent) => [parent, b"/", name].concat(),
        None => name.to_vec(),
    }
}

/// A name that no other has, as it holds its number.
fn name(dice: &mut Chance, shape: &Shape, what: &str, number: usize) -> Vec<u8> {
    if shape.raw_names && dice.below(8) == 0 {
        return [format!("{what}{number}").as_bytes(), b"\xff\xfe"].concat();
    }
    match shape.odd_names && dice.below(2) == 0 {
        true => format!("{}{what}{number}", ODD[dice.below(ODD.len())]).into_bytes(),
        false => format!("{what}{number}").into_bytes(),
    }
}

fn size(dice: &mut Chance, shape: &Shape) -> u64 {
    let multiple = shape.edge * (1 + dice.below(3) as u64);
    let size = match dice.below(8) {
        0 => 0,
        1 => 1,
        2 => multiple - 1,
        3 => multiple,
        4 => multiple + 1,
        5 => dice.next() % shape.largest.max(1),
        _ => dice.next() % 5000,
    };
    size.min(shape.largest)
}

fn mtime(dice: &mut Chance) -> Mtime {
    match dice.below(6) {
        0 => Mtime(-1),
        1 => Mtime::new(-86_400, 123_456_789),
        2 => Mtime::new(1_000_000_000, 0),
        _ => Mtime::new((dice.next() % 1_700_000_000) as i64, (dice.next() % 1_000_000_000) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_tree() {
        let shape = Shape::default();
        assert_eq!(Tree::new(7, &shape), Tree::new(7, &shape));
        assert_ne!(Tree::new(7, &shape), Tree::new(8, &shape));
    }

    #[test]
    fn a_tree_can_be_written() {
        let temp = tempfile::tempdir().unwrap();
        let shape = Shape { raw_names: true, ..Shape::default() };
        let tree = Tree::new(1, &shape);
        tree.write_to(temp.path()).unwrap();
        assert_eq!((tree.files.len(), tree.links.len()), (shape.files, shape.links));
        for file in &tree.files {
            let meta = fs::metadata(temp.path().join(OsStr::from_bytes(&file.key))).unwrap();
            assert_eq!((meta.len(), meta.modified().unwrap()), (file.size, system_time(file.mtime)));
        }
        assert!(tree.files.iter().any(|f| f.size == 0) && tree.files.iter().any(|f| f.size > 60_000));
    }
}
