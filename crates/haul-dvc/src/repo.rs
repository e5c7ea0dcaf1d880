//! A repository: its root, its configuration, and the paths that its `.dvc` files and `dvc.lock` files track.

// A repository is files of this machine's disk, which this crate reads and writes by itself.
#![allow(clippy::disallowed_methods)]

use crate::{
    cache::Cache,
    config::{Config, normal},
    dvcfile::{self, Out},
    dvcignore::{self, Ignored},
    lock::TMP,
    paths::{folder_of, joined, tracked_path},
    pipeline::{Flags, Pipeline},
};
use haul::index::FileHashes;
use haul_cas::{
    address::Address,
    facts::{invalid, io_error},
    parallel::spread_batches,
    state::State,
};
use haul_core::{Error, ErrorKind, Result};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The command line's surroundings.
#[derive(Clone, Debug, Default)]
pub struct CallerSettings {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Configuration files outside of the repository, the weakest first.
    pub configs: Vec<PathBuf>,
    /// Hashes of files that earlier runs computed.
    pub hashes: Arc<FileHashes>,
}

/// A repository.
#[derive(Clone, Debug)]
pub struct Repo {
    /// The folder that holds `.dvc`, absolute.
    pub root: PathBuf,
    /// Its configuration, all levels.
    pub config: Config,
    /// Its cache.
    pub cache: Cache,
    hashes: Arc<FileHashes>,
}

/// Something tracked.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// The `.dvc` file or `dvc.lock`, below the root.
    pub file: String,
    /// The stage, in a `dvc.lock`.
    pub stage: Option<String>,
    /// Its number in the file.
    pub index: usize,
    /// The path of the file or directory, below the root.
    pub path: String,
    /// Its recorded out.
    pub out: Out,
    /// It comes from another repository.
    pub imported: bool,
}

/// Everything that is tracked.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Files and directories.
    pub outs: Vec<Tracked>,
    /// Their dependencies, if `dvc.lock` or a `.dvc` file names them.
    pub deps: Vec<Tracked>,
}

/// A tracked path, or a part of one, that a command is about.
#[derive(Clone, Debug)]
pub struct SelectedPath {
    /// The tracked path it belongs to.
    pub tracked: Tracked,
    /// Only these files and folders of the directory, below it, sorted; all of it when there are none.
    pub within: Vec<String>,
}

impl SelectedPath {
    /// True for a file of the directory that is meant.
    pub fn holds(&self, path: &str) -> bool {
        let named = |path: &str| self.within.binary_search_by(|within| within.as_str().cmp(path)).is_ok();
        let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.within.is_empty() || named(path) || folders.any(named)
    }
}

/// Pieces of content that were chosen, about; as many as can be where it isn't known how many files a directory has.
pub fn count(chosen: &[SelectedPath]) -> u64 {
    let of =
        |out: &Out| if out.address.is_some_and(|address| address.dir) { out.nfiles.unwrap_or(u64::MAX) } else { 0 };
    chosen.iter().fold(chosen.len() as u64, |count, one| count.saturating_add(of(&one.tracked.out)))
}

/// The rest of a path after `folder/`; empty for the folder itself.
pub fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    if folder.is_empty() || rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

impl Repo {
    /// The repository that holds a folder.
    ///
    /// Errors: there is none, or its configuration can't be read.
    pub fn find(from: &Path, around: &CallerSettings) -> Result<Repo> {
        let root = from.ancestors().find(|folder| folder.join(".dvc").is_dir()).ok_or_else(|| {
            let message = "not in a DVC repository (run dvc init)";
            Error::new(ErrorKind::DirNotFound, "find", message)
        })?;
        let dvc = root.join(".dvc");
        let mut config = Config::default();
        let own = [dvc.join("config"), dvc.join("config.local")];
        for file in around.configs.iter().chain(&own) {
            let text = match fs::read_to_string(file) {
                Ok(text) => text,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(io_error("read", file, e)),
            };
            let folder = file.parent().unwrap_or(root);
            config.add(&text, folder, around.home.as_deref()).map_err(|why| invalid("read", file, why))?;
        }
        let folder = config.cache_dir().unwrap_or_else(|| dvc.join("cache"));
        Ok(Repo {
            root: root.to_path_buf(),
            cache: Cache::new(folder, config.shared()).with_scratch(dvc.join(TMP)),
            hashes: around.hashes.clone(),
            config,
        })
    }

    /// `.dvc`.
    pub fn dvc_dir(&self) -> PathBuf {
        self.root.join(".dvc")
    }

    /// Hashes of earlier runs.
    pub fn state(&self) -> State {
        State::new(self.hashes.clone())
    }

    /// Which of these the cache holds, and their sizes in bytes, in the same order.
    ///
    /// Errors: the cache can't be read.
    pub async fn held(&self, all: Vec<Address>) -> Result<Vec<(Address, Option<u64>)>> {
        let cache = self.cache.clone();
        let held = spread_batches(all, move |batch| {
            let held = cache.holds_of(&batch);
            batch.into_iter().zip(held).map(|(address, held)| Ok((address, held?))).collect()
        });
        held.await?.into_iter().collect()
    }

    /// A path that a user typed in `here`, below the root.
    ///
    /// Errors: it is outside.
    pub fn relative(&self, here: &Path, typed: &str) -> Result<String> {
        let path = normal(&here.join(typed));
        let inside = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        inside.map(str::to_string).ok_or_else(|| {
            let message = format!("it is outside of the repository {}", self.root.display());
            invalid("open", Path::new(typed), message)
        })
    }

    /// Reads every `.dvc` file and `dvc.lock`, except in what is ignored or itself tracked.
    ///
    /// Errors: a folder or file that can't be read or understood.
    pub fn index(&self) -> Result<Index> {
        let mut index = Index::default();
        self.scan(String::new(), &Ignored::default(), &mut index)?;
        Ok(index)
    }

    /// The rules that hold in a folder below the root.
    pub fn ignored_in(&self, folder: &str) -> Result<Ignored> {
        let mut ignored = self.rules(&self.root, &Ignored::default())?;
        let mut path = self.root.clone();
        for part in folder.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            ignored = self.rules(&path, &ignored)?;
        }
        Ok(ignored)
    }

    fn rules(&self, folder: &Path, above: &Ignored) -> Result<Ignored> {
        let file = folder.join(dvcignore::NAME);
        match fs::read_to_string(&file) {
            Ok(text) => above.with(folder, &text),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(above.clone()),
            Err(e) => Err(io_error("read", &file, e)),
        }
    }

    fn scan(&self, folder: String, above: &Ignored, index: &mut Index) -> Result<()> {
        let path = self.root.join(&folder);
        let ignored = self.rules(&path, above)?;
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&path).map_err(|e| io_error("list", &path, e))? {
            let entry = entry.map_err(|e| io_error("list", &path, e))?;
            // DVC can't track what isn't UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().map_err(|e| io_error("list", &entry.path(), e))?;
            if dvcignore::is_tools_own(name.as_bytes()) || ignored.is(&entry.path(), kind.is_dir()) {
                continue;
            }
            match kind.is_dir() {
                true => folders.push(name),
                false if name == "dvc.lock" || name.ends_with(".dvc") => files.push(name),
                false => {}
            }
        }
        files.sort_unstable();
        for name in files {
            self.read_file(&folder, &name, index)?;
        }
        folders.sort_unstable();
        let outs: BTreeSet<&str> = index.outs.iter().map(|out| out.path.as_str()).collect();
        let next: Vec<String> =
            folders.into_iter().map(|name| joined(&folder, &name)).filter(|p| !outs.contains(p.as_str())).collect();
        for folder in next {
            // A repository in this one is that one's business.
            if !self.root.join(&folder).join(".dvc").is_dir() {
                self.scan(folder, &ignored, index)?;
            }
        }
        Ok(())
    }

    fn read_file(&self, folder: &str, name: &str, index: &mut Index) -> Result<()> {
        let file = joined(folder, name);
        let path = self.root.join(&file);
        let text = fs::read_to_string(&path).map_err(|e| io_error("read", &path, e))?;
        if name != "dvc.lock" {
            return index.add_file(&file, &text).map_err(|why| invalid("read", Path::new(&file), why));
        }
        let yaml = joined(folder, "dvc.yaml");
        let text_of = |below: &str| match fs::read_to_string(self.root.join(below)) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("read", &self.root.join(below), e)),
        };
        // Without its dvc.yaml a dvc.lock means nothing.
        let Some(pipeline) = text_of(&yaml)? else { return Ok(()) };
        let params = |name: &str| text_of(&joined(folder, name)).ok().flatten();
        let pipeline = Pipeline::parse(&pipeline, &params).map_err(|why| invalid("read", Path::new(&yaml), why))?;
        index.add_lock(&file, &text, &pipeline).map_err(|why| invalid("read", Path::new(&file), why))
    }
}

impl Index {
    /// Adds a `.dvc` file; `file` is its path below the root.
    ///
    /// Errors: the problem in it.
    pub fn add_file(&mut self, file: &str, text: &str) -> Result<(), String> {
        let read = dvcfile::parse(text)?;
        self.add(file, None, read);
        Ok(())
    }

    /// Adds a `dvc.lock`, by the `dvc.yaml` beside it: stages and outs missing from that are left out.
    ///
    /// Errors: the problem in it.
    pub fn add_lock(&mut self, file: &str, text: &str, pipeline: &Pipeline) -> Result<(), String> {
        for mut stage in dvcfile::parse_lock(text)? {
            let Some(own) = pipeline.stage(&stage.name)? else { continue };
            stage.file.outs.retain_mut(|out| {
                let flags = own.flags(&out.path);
                if let Some(flags) = &flags {
                    (out.cache, out.push, out.remote) = (flags.cache, flags.push, flags.remote.clone());
                }
                flags.is_some()
            });
            (stage.file.wdir, stage.file.frozen) = (own.wdir, own.frozen);
            self.add(file, Some(stage.name), stage.file);
        }
        Ok(())
    }

    /// Adds an earlier `dvc.lock`. Which of some states of its `dvc.yaml` belongs to it isn't known: an out that one of them keeps or
    /// pushes is kept or pushed, and so is one that none of them has.
    ///
    /// Errors: the problem in it.
    pub fn add_old_lock(&mut self, file: &str, text: &str, pipelines: &[&Pipeline]) -> Result<(), String> {
        for mut stage in dvcfile::parse_lock(text)? {
            let states: Vec<_> = pipelines.iter().filter_map(|state| state.stage(&stage.name).ok().flatten()).collect();
            for out in &mut stage.file.outs {
                let flags_of_stages = states.iter().filter_map(|state| state.flags(&out.path));
                if let Some(flags) = flags_of_stages.reduce(Flags::or) {
                    (out.cache, out.push, out.remote) = (flags.cache, flags.push, flags.remote);
                }
            }
            stage.file.wdir = states.into_iter().find_map(|state| state.wdir);
            self.add(file, Some(stage.name), stage.file);
        }
        Ok(())
    }

    fn add(&mut self, file: &str, stage: Option<String>, read: dvcfile::DvcFile) {
        let (folder, wdir) = (folder_of(file), read.wdir.as_deref());
        let tracked = |(index, out): (usize, Out)| Tracked {
            file: file.into(),
            stage: stage.clone(),
            index,
            path: tracked_path(folder, wdir, &out.path),
            imported: read.imported,
            out,
        };
        self.outs.extend(read.outs.into_iter().enumerate().map(tracked));
        if !read.imported && !read.frozen {
            self.deps.extend(read.deps.into_iter().enumerate().map(tracked));
        }
    }

    /// The tracked paths that the targets name; everything when there are none. A target is a tracked path, a path in a tracked directory,
    /// a `.dvc` file, a stage, a `dvc.yaml`; with `recursive` a folder that holds such. All are below the root already, except stages.
    ///
    /// Errors: a target that names nothing.
    pub fn choose(&self, targets: &[String], recursive: bool) -> Result<Vec<SelectedPath>> {
        if targets.is_empty() {
            return Ok(self.outs.iter().map(|out| SelectedPath { tracked: out.clone(), within: Vec::new() }).collect());
        }
        let mut chosen: BTreeMap<(String, Option<String>, usize), SelectedPath> = BTreeMap::new();
        for target in targets {
            let found: Vec<SelectedPath> = self.outs.iter().filter_map(|out| means(target, out, recursive)).collect();
            if found.is_empty() {
                let message = "nothing of that name is tracked: a target is a tracked path, a .dvc file or a stage";
                return Err(Error::new(ErrorKind::NotFound, "open", message).with_key(&haul_core::Key::new(target)));
            }
            for one in found {
                let place = (one.tracked.file.clone(), one.tracked.stage.clone(), one.tracked.index);
                match chosen.entry(place) {
                    Entry::Vacant(free) => drop(free.insert(one)),
                    Entry::Occupied(mut old) => {
                        let both = &mut old.get_mut().within;
                        // The whole holds each part.
                        match both.is_empty() || one.within.is_empty() {
                            true => both.clear(),
                            false => both.extend(one.within),
                        }
                    }
                }
            }
        }
        let sorted = |mut one: SelectedPath| {
            one.within.sort_unstable();
            one.within.dedup();
            one
        };
        Ok(chosen.into_values().map(sorted).collect())
    }
}

fn means(target: &str, out: &Tracked, recursive: bool) -> Option<SelectedPath> {
    let whole = SelectedPath { tracked: out.clone(), within: Vec::new() };
    let folder = folder_of(&out.file);
    let stage = out.stage.as_ref().is_some_and(|name| {
        let plain = name.split('@').next().unwrap_or_default();
        [name.as_str(), plain].into_iter().any(|name| {
            let full = joined(folder, &format!("dvc.yaml:{name}"));
            target == full || (folder.is_empty() && target == name)
        })
    });
    let pipeline = out.stage.is_some() && target == joined(folder, "dvc.yaml");
    if stage || pipeline || target == out.path || target == out.file {
        return Some(whole);
    }
    if recursive && (below(&out.path, target).is_some() || below(&out.file, target).is_some()) {
        return Some(whole);
    }
    let within = below(target, &out.path).filter(|rest| !rest.is_empty())?;
    out.out.address.is_some_and(|a| a.dir).then(|| SelectedPath { within: vec![within.into()], ..whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        index
            .add_file("data.dvc", "outs:\n- md5: 1e22361e83161aaf6ea7cfed91cb7df2.dir\n  hash: md5\n  path: data\n")
            .unwrap();
        index
            .add_file("sub/x.dvc", "wdir: ..\nouts:\n- md5: b1946ac92492d2347c6235b4d2611184\n  path: sub/x\n")
            .unwrap();
        let lock = "schema: '2.0'\nstages:\n  train@a:\n    outs:\n    - path: model\n      hash: md5\n      md5: \
                    b1946ac92492d2347c6235b4d2611184\n";
        let pipeline =
            "stages:\n  train:\n    foreach: [a]\n    do:\n      outs:\n      - model:\n          push: false\n";
        let pipeline = Pipeline::parse(pipeline, &|_| None).unwrap();
        index.add_lock("p/dvc.lock", lock, &pipeline).unwrap();
        index
    }

    #[test]
    fn paths_are_relative_to_the_file_and_its_wdir() {
        let index = index();
        let paths: Vec<_> = index.outs.iter().map(|out| out.path.as_str()).collect();
        assert_eq!(paths, ["data", "sub/x", "p/model"]);
        assert!(!index.outs[2].out.push && index.outs[2].out.cache);
        assert_eq!(tracked_path("a", None, "../../x"), "../../x");
    }

    #[test]
    fn parts_of_a_directory_are_found_among_many() {
        let many: Vec<String> = (0..20_000).rev().map(|n| format!("data/d/{n}")).collect();
        let targets = [&many[..], &["data/f".into(), "data/a/b".into(), "data/f".into()]].concat();
        let chosen = index().choose(&targets, false).unwrap();
        assert_eq!((chosen.len(), chosen[0].within.len()), (1, 20_002));
        for path in ["f", "f/x/y", "a/b", "a/b/c", "d/19999"] {
            assert!(chosen[0].holds(path), "{path}");
        }
        for path in ["a", "a/bc", "a/c", "f2", "d", "d/20000", "x/f", ""] {
            assert!(!chosen[0].holds(path), "{path}");
        }
        // Each of the targets against each of the files would be billions of comparisons.
        assert!((0..200_000).all(|n| chosen[0].holds(&format!("d/{}/x", n % 20_000))));
    }

    #[test]
    fn targets_are_what_people_type() {
        let index = index();
        let of = |targets: &[&str], recursive: bool| -> Vec<String> {
            let targets: Vec<String> = targets.iter().map(|t| t.to_string()).collect();
            let all = index.choose(&targets, recursive).unwrap();
            all.into_iter().map(|c| [&[c.tracked.path][..], &c.within[..]].concat().join(" ")).collect()
        };
        assert_eq!(of(&[], false), ["data", "sub/x", "p/model"]);
        assert_eq!(of(&["data"], false), ["data"]);
        assert_eq!(of(&["data.dvc", "data/a/b"], false), ["data"], "the whole holds the part");
        assert_eq!(of(&["data/a/b"], false), ["data a/b"]);
        assert_eq!(of(&["data/a", "data/c/d"], false), ["data a c/d"], "never more than was typed");
        assert_eq!(of(&["data/a", "data", "data/b"], false), ["data"]);
        assert_eq!(of(&["sub"], true), ["sub/x"]);
        assert_eq!(of(&["p/dvc.yaml:train"], false), ["p/model"]);
        assert_eq!(of(&["p/dvc.yaml"], false), ["p/model"]);
        for target in ["sub", "nothing", "dat", "sub/x/y"] {
            let error = index.choose(&[target.into()], false).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{target}: open: nothing of that name is tracked: a target is a tracked path, a .dvc file or a stage"
                )
            );
        }
    }
}
