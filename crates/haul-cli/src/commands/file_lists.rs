//! Lists of files by how the two sides compare, as rclone writes them: of `check`, and of the jobs that copy.

use crate::show::out::Output;
use anyhow::{Context as _, Result};
use haul::check::CheckResult;
use haul_core::{
    Key,
    event::{Event, Sink, StepId},
    plan::Action,
};
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

/// Files to write names to; `-` is standard output.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Lists of names")]
pub struct Lists {
    /// Write a line for each file to this file, with a sign: = same, - missing on the source, + missing on the destination, * differs, ! error
    #[arg(long, value_name = "FILE")]
    combined: Option<PathBuf>,
    /// Write the names of files that differ to this file
    #[arg(long, value_name = "FILE")]
    differ: Option<PathBuf>,
    /// Write the names of files that are the same to this file
    #[arg(long = "match", value_name = "FILE")]
    matching: Option<PathBuf>,
    /// Write the names of files missing from the source to this file
    #[arg(long, value_name = "FILE")]
    missing_on_src: Option<PathBuf>,
    /// Write the names of files missing from the destination to this file
    #[arg(long, value_name = "FILE")]
    missing_on_dst: Option<PathBuf>,
    /// Write the names of files that failed to this file
    #[arg(long, value_name = "FILE")]
    error: Option<PathBuf>,
}

/// The lists of jobs that copy.
#[derive(clap::Args, Debug)]
pub struct JobLists {
    #[command(flatten)]
    lists: Lists,
    /// Write the names of all files at the destination after the run to this file
    #[arg(long, value_name = "FILE")]
    dest_after: Option<PathBuf>,
}

impl Lists {
    /// All files with their signs on standard output, as rclone's `hashsum --checkfile` has them.
    pub fn combined_to_output() -> Lists {
        let (differ, matching, missing_on_src, missing_on_dst, error) = Default::default();
        Lists { combined: Some("-".into()), differ, matching, missing_on_src, missing_on_dst, error }
    }

    fn any(&self) -> bool {
        let all =
            [&self.combined, &self.differ, &self.matching, &self.missing_on_src, &self.missing_on_dst, &self.error];
        all.into_iter().any(Option::is_some)
    }
}

impl JobLists {
    /// True if one of them shows files that only the destination has: it must be listed whole.
    pub fn want_extra(&self) -> bool {
        self.lists.combined.is_some() || self.lists.missing_on_src.is_some() || self.dest_after.is_some()
    }
}

type List = Option<BufWriter<Box<dyn Write + Send>>>;

fn create(path: Option<&Path>) -> Result<List> {
    let Some(path) = path else { return Ok(None) };
    if path.as_os_str() == "-" {
        return Ok(Some(BufWriter::new(Box::new(Output::stdout()))));
    }
    #[expect(clippy::disallowed_methods, reason = "a file that the user named for output")]
    let file = File::create(path).with_context(|| format!("can't create {}", path.display()))?;
    Ok(Some(BufWriter::new(Box::new(file))))
}

fn line(out: &mut List, key: &Key) -> std::io::Result<()> {
    let Some(out) = out else { return Ok(()) };
    out.write_all(key.stored())?;
    out.write_all(b"\n")
}

/// The lists that were asked for.
pub struct Writers {
    combined: List,
    differ: List,
    matching: List,
    missing_on_src: List,
    missing_on_dst: List,
    error: List,
}

impl Writers {
    /// Creates the files.
    pub fn open(lists: &Lists) -> Result<Writers> {
        Ok(Writers {
            combined: create(lists.combined.as_deref())?,
            differ: create(lists.differ.as_deref())?,
            matching: create(lists.matching.as_deref())?,
            missing_on_src: create(lists.missing_on_src.as_deref())?,
            missing_on_dst: create(lists.missing_on_dst.as_deref())?,
            error: create(lists.error.as_deref())?,
        })
    }

    /// Writes a file where it belongs.
    pub fn write(&mut self, found: CheckResult, key: &Key) -> std::io::Result<()> {
        if let Some(out) = &mut self.combined {
            write!(out, "{} ", found.sign())?;
        }
        line(&mut self.combined, key)?;
        let out = match found {
            CheckResult::Same => &mut self.matching,
            CheckResult::Differs => &mut self.differ,
            CheckResult::MissingAtSrc => &mut self.missing_on_src,
            CheckResult::MissingAtDst => &mut self.missing_on_dst,
            CheckResult::Error => &mut self.error,
        };
        line(out, key)
    }

    /// Errors: the output can't be written.
    pub fn finish(self) -> Result<()> {
        let all = [self.combined, self.differ, self.matching, self.missing_on_src, self.missing_on_dst, self.error];
        all.into_iter().try_for_each(flush)
    }
}

fn flush(out: List) -> Result<()> {
    out.map_or(Ok(()), |mut out| out.flush()).context("can't write the list of files")
}

/// A sink that writes the lists of a job, and passes every event on.
pub struct Listing {
    next: Arc<dyn Sink>,
    state: Mutex<State>,
}

struct State {
    writers: Option<Writers>,
    dest_after: List,
    /// Transfers under way.
    moving: HashMap<StepId, Key>,
    /// Files that a transfer is to replace.
    replaced: HashSet<Key>,
    /// The first thing that could not be written.
    failed: Option<std::io::Error>,
}

impl Listing {
    /// The sink of a job's lists; `None` where none was asked for.
    ///
    /// Errors: a file that can't be created.
    pub fn open(lists: &JobLists, next: &Arc<dyn Sink>) -> Result<Option<Arc<Listing>>> {
        if !lists.lists.any() && lists.dest_after.is_none() {
            return Ok(None);
        }
        let state = State {
            writers: Some(Writers::open(&lists.lists)?),
            dest_after: create(lists.dest_after.as_deref())?,
            moving: HashMap::new(),
            replaced: HashSet::new(),
            failed: None,
        };
        Ok(Some(Arc::new(Listing { next: next.clone(), state: Mutex::new(state) })))
    }

    /// Errors: the output can't be written.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state();
        if let Some(error) = state.failed.take() {
            return Err(error).context("can't write the list of files");
        }
        flush(state.dest_after.take())?;
        state.writers.take().map_or(Ok(()), Writers::finish)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sink for Listing {
    fn emit(&self, event: &Event) {
        self.state().take(event);
        self.next.emit(event);
    }
}

impl State {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Decided { key, action, why, dry_run, .. } => {
                let Some(found) = CheckResult::of(*action, *why) else { return };
                self.write(found, key);
                let stays = match found {
                    CheckResult::Same => true,
                    CheckResult::MissingAtSrc => *dry_run || *action == Action::Keep,
                    CheckResult::Differs => *dry_run || *action == Action::Refuse,
                    CheckResult::MissingAtDst | CheckResult::Error => false,
                };
                if stays {
                    self.after(key);
                } else if found == CheckResult::Differs {
                    self.replaced.insert(key.clone());
                }
            }
            Event::Begun { step, key, .. } => {
                self.moving.insert(*step, key.clone());
            }
            Event::Done { step, key, .. } => {
                self.moving.remove(step);
                self.replaced.remove(key);
                self.after(key);
            }
            Event::Failed { step, error } => {
                let begun = self.moving.remove(step);
                if let Some(key) = error.key().or(begun.as_ref()) {
                    self.write(CheckResult::Error, key);
                    if self.replaced.remove(key) {
                        // The file that was to be replaced is still there.
                        self.after(key);
                    }
                }
            }
            Event::Error(error) => {
                if let Some(key) = error.key() {
                    self.write(CheckResult::Error, key);
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, found: CheckResult, key: &Key) {
        let written = self.writers.as_mut().map_or(Ok(()), |writers| writers.write(found, key));
        self.keep(written);
    }

    fn after(&mut self, key: &Key) {
        let written = line(&mut self.dest_after, key);
        self.keep(written);
    }

    fn keep(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}
