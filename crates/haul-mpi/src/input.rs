//! `--input`: the names to copy of a source, and no others. Rank 0 has them, sorted, and sends those of each directory to the
//! rank that works in it.

use crate::work::{Job, Raw};
use haul_core::name_list;
use std::{
    ffi::OsStr,
    fs::File,
    io::BufReader,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// Names in a source.
#[derive(Debug)]
pub struct Names {
    /// Sorted, each once, without a slash at its end.
    all: Vec<Box<[u8]>>,
}

impl Names {
    /// Reads the job's list, if it has one.
    ///
    /// Errors: one line: the list can't be read, or names what isn't in the source.
    pub fn of(job: &Job) -> Result<Option<Names>, String> {
        let (Some(list), [root]) = (&job.input, &job.roots[..]) else { return Ok(None) };
        let list = Path::new(OsStr::from_bytes(list));
        let failed = |why: String| format!("{}: {why}", list.display());
        let file = File::open(list).map_err(|e| failed(e.to_string()))?;
        // dwalk writes where files are, whatever was typed.
        let real: Option<PathBuf> = Path::new(OsStr::from_bytes(&root.src)).canonicalize().ok();
        let mut folder = vec![&root.src[..]];
        folder.extend(job.typed_src.as_ref().map(|typed| &typed[..]));
        folder.extend(real.iter().map(|real| real.as_os_str().as_bytes()));
        let mut all = Vec::new();
        let read = name_list::read(BufReader::with_capacity(1 << 20, file), |path| {
            all.extend(name_list::name_in(path, &folder)?.map(Vec::into_boxed_slice));
            Ok(())
        });
        read.map_err(failed)?;
        Ok(Some(Names::from_all(all)))
    }

    fn from_all(mut all: Vec<Box<[u8]>>) -> Names {
        all.sort_unstable();
        all.dedup();
        Names { all }
    }

    /// The names to look at in a directory, which is empty or ends in `/`: names, and directories that contain some, with a slash
    /// at their end. Sorted.
    pub fn in_dir(&self, dir: &[u8]) -> Vec<Raw> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = self.all.partition_point(|name| &name[..] < dir);
        while let Some(name) = self.all.get(at).filter(|name| name.starts_with(dir)) {
            let below = &name[dir.len()..];
            match below.iter().position(|b| *b == b'/') {
                Some(end) => {
                    let inner = &name[..dir.len() + end + 1];
                    at += self.all[at..].partition_point(|name| name.starts_with(inner));
                    names.push(inner.to_vec());
                }
                None => {
                    names.push(name.to_vec());
                    at += 1;
                }
            }
        }
        // A directory that is named itself, and in which some are.
        let inner: Vec<Vec<u8>> = names.iter().filter_map(|name| name.strip_suffix(b"/")).map(<[u8]>::to_vec).collect();
        names.retain(|name| inner.binary_search(name).is_err());
        names.sort_unstable();
        names.into_iter().map(Raw::from).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Of names that tests have.
    pub fn names(all: &[&str]) -> Names {
        Names::from_all(all.iter().map(|name| name.as_bytes().into()).collect())
    }

    #[test]
    fn each_directory_has_its_own_names() {
        let all = names(&["b", "a/x", "a", "a-b", "a/y/z", "a/y/w", "c/d/e", "b", "a.d/x"]);
        let of = |dir: &str| {
            let names = all.in_dir(dir.as_bytes());
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(""), ["a-b", "a.d/", "a/", "b", "c/"]);
        assert_eq!(of("a/"), ["a/x", "a/y/"]);
        assert_eq!(of("a/y/"), ["a/y/w", "a/y/z"]);
        assert_eq!(of("c/"), ["c/d/"]);
        assert_eq!(of("b/"), [""; 0]);
    }
}
