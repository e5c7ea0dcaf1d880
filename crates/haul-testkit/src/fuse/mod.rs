//! A file system whose faults a test chooses: a folder shown through FUSE. What a network's file systems do (say at closing that
//! bytes are lost, lack calls, number inodes anew) happens here on one machine. Needs root and /dev/fuse.

mod serve;

use crate::peers;
use rustix::io::Errno;
use serve::FuseFs;
use std::{
    ffi::OsStr,
    fs,
    ops::Range,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What a fault is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultOperation {
    /// Reading any of these bytes.
    Read(Range<u64>),
    /// Writing behind so many bytes.
    Write(u64),
    /// Closing a file that was written, after which only so many bytes of it are there. Each open file says it once, as NFS does.
    Close(u64),
    /// Forcing a file to the device.
    Fsync,
    /// Looking a name up.
    Lookup,
    /// Listing a folder, after so many names.
    List(usize),
}

/// A fault, and where it is.
#[derive(Clone, Debug)]
pub struct Fault {
    /// In what.
    pub of: FaultOperation,
    /// In paths, below the folder, that contain this.
    pub at: &'static str,
    /// What is answered.
    pub errno: Errno,
    /// How often it is still to happen.
    pub times: u32,
}

impl Fault {
    /// One that never ends.
    pub fn new(of: FaultOperation, at: &'static str, errno: Errno) -> Fault {
        Fault { of, at, errno, times: u32::MAX }
    }
}

/// What a file system does otherwise than others. None of these has files without a name (`O_TMPFILE`) or reserves space.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsBehaviour {
    /// It can't rename on condition that nothing is replaced, as NFS can't.
    pub no_conditional_rename: bool,
    /// It has no hard links.
    pub no_hard_links: bool,
    /// It has no `user.` attributes.
    pub no_user_xattrs: bool,
    /// Everything has an NFSv4 ACL (`system.nfs4_acl`). As there, permissions are made from it and setting them makes another of it:
    /// here it begins with them, in four octal digits.
    pub nfs4_acls: bool,
    /// Times are whole seconds.
    pub whole_seconds: bool,
    /// Those of the root are, as of a folder that a program makes up.
    pub whole_root: bool,
    /// A file that is looked up for the second time has another inode number from then on, as where only what the kernel still
    /// remembers has one.
    pub shifting_inodes: bool,
    /// Names are looked up without regard to ASCII case; what has one keeps it, under whichever it is replaced.
    pub folds_case: bool,
    /// Inodes are numbered from here on. Another mount of the folder can number them otherwise.
    pub first_inode: u64,
    /// Each answer takes so long, as a server's does.
    pub delay: Duration,
}

/// Requests that wait for their answer.
#[derive(Debug, Default)]
struct Waiting {
    now: AtomicUsize,
    most: AtomicUsize,
    /// Bytes of all requests to write.
    written: AtomicU64,
}

impl Waiting {
    fn wait(&self, delay: Duration) {
        if !delay.is_zero() {
            let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
            self.most.fetch_max(now, Ordering::AcqRel);
            std::thread::sleep(delay);
            self.now.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Requests that are answered at once.
const AT_ONCE: usize = 64;

/// A mounted one; unmounted when dropped, and when this process ends in any other way.
#[derive(Debug)]
pub struct MountedFs {
    place: PathBuf,
    faults: Arc<Mutex<Vec<Fault>>>,
    waiting: Arc<Waiting>,
    guard: Child,
    session: Option<fuser::BackgroundSession>,
}

impl MountedFs {
    /// Shows `folder` at `place`; both are made. `None` after saying that the test is skipped.
    ///
    /// Panics if a folder can't be made.
    pub fn new(folder: &Path, place: &Path, behaviour: FsBehaviour) -> Option<MountedFs> {
        for made in [folder, place] {
            fs::create_dir_all(made).expect("folder");
        }
        let faults = Arc::<Mutex<Vec<Fault>>>::default();
        // It waits for this process to end, whatever ends it: then its input does.
        let script = "trap '' INT TERM HUP; cat >/dev/null; umount -l \"$1\"";
        let mut guard = Command::new("sh");
        guard.args(["-c", script, "sh"]).arg(place).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.spawn().expect("sh");
        let mut options = fuser::Config::default();
        options.mount_options = vec![fuser::MountOption::FSName("haul-test".into())];
        if !behaviour.delay.is_zero() {
            options.n_threads = Some(AT_ONCE);
        }
        let waiting = Arc::<Waiting>::default();
        let shown = FuseFs::new(folder, behaviour, faults.clone(), waiting.clone());
        match fuser::spawn_mount(shown, place, &options) {
            Ok(session) => {
                Some(MountedFs { place: place.to_path_buf(), faults, waiting, guard, session: Some(session) })
            }
            Err(why) => {
                peers::skip(&format!("FUSE can't be tried here: {why}"));
                end(guard);
                None
            }
        }
    }

    /// Lets something go wrong from now on.
    pub fn fault(&self, fault: Fault) {
        lock(&self.faults).push(fault);
    }

    /// How many requests waited for their answers at the same time, at most so far; 0 without a delay.
    pub fn most_at_once(&self) -> usize {
        self.waiting.most.load(Ordering::Acquire)
    }

    /// Bytes that were written so far.
    pub fn written(&self) -> u64 {
        self.waiting.written.load(Ordering::Relaxed)
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        lock(&self.faults).clear();
    }
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        // Also when somebody still has a file of it open. If it fails, the guard tries too.
        let _ = Command::new("umount").arg("-l").arg(&self.place).stderr(Stdio::null()).status();
        drop(self.session.take());
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn end(mut guard: Child) {
    drop(guard.stdin.take());
    let _ = guard.wait();
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer of the first fault that is due at `path`, which counts it.
fn due(faults: &Mutex<Vec<Fault>>, path: &Path, is: impl Fn(&FaultOperation) -> bool) -> Option<Fault> {
    let path = path.as_os_str().as_bytes();
    let here = |fault: &Fault| path.windows(fault.at.len().max(1)).any(|part| OsStr::from_bytes(part) == fault.at);
    let mut faults = lock(faults);
    let fault = faults.iter_mut().find(|fault| fault.times > 0 && is(&fault.of) && here(fault))?;
    fault.times = fault.times.saturating_sub(u32::from(fault.times != u32::MAX));
    Some(fault.clone())
}
