//! The destination's own time, where several sources are jobs of their own: a job after the one that brings it changes it by what it
//! makes there.

use super::{named_files, options::Options, path_args::is_here};
use rustix::{
    fs::{OFlags, Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};
use std::{ffi::OsStr, fs::File, os::unix::ffi::OsStrExt as _};

/// The time that the destination's folder is to have in the end.
pub struct Top<'a> {
    dest: &'a OsStr,
    any_links: bool,
    /// Times of directories are kept, and the destination is here.
    keeps: bool,
    time: Option<Timespec>,
}

impl<'a> Top<'a> {
    /// One of a destination of which no time is known yet.
    pub fn new(options: &Options, dest: &'a OsStr) -> Top<'a> {
        let backs_up = options.backup && options.backup_dir.is_none();
        let keeps = options.times && !options.omit_dir_times && !backs_up && !options.dry_run && is_here(dest);
        Top { dest, any_links: options.insecure_links, keeps, time: None }
    }

    /// Remembers the time that a job has just given it.
    pub fn note(&mut self) {
        self.time = self.folder().and_then(|folder| time(&folder).ok());
    }

    /// Gives it back the time that was noted. Where that can't be, nothing is missed.
    pub fn restore(&self) {
        if let (Some(noted), Some(folder)) = (self.time, self.folder())
            && time(&folder).is_ok_and(|time| (time.tv_sec, time.tv_nsec) != (noted.tv_sec, noted.tv_nsec))
        {
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let _ = rustix::fs::futimens(&folder, &Timestamps { last_access, last_modification: noted });
        }
    }

    fn folder(&self) -> Option<File> {
        let opened = self
            .keeps
            .then(|| named_files::open(self.dest.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, self.any_links));
        opened?.ok()
    }
}

fn time(folder: &File) -> Result<Timespec, Errno> {
    let st = rustix::fs::fstat(folder)?;
    Ok(Timespec { tv_sec: st.st_mtime as _, tv_nsec: st.st_mtime_nsec as _ })
}
