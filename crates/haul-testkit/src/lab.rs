//! A place to run programs in: its own folder, home, configuration; none of the machine's.

pub use crate::folder::temporary;
use crate::{peers, servers};
use std::{
    env, fs,
    io::Write as _,
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// What a program did.
#[derive(Clone, Debug)]
pub struct ProgramResult {
    /// The exit code; 128 and the signal's number for one that was killed.
    pub code: i32,
    /// What it wrote to its output.
    pub out: String,
    /// What it wrote to its error output.
    pub err: String,
    /// The command line.
    pub line: String,
}

impl ProgramResult {
    fn new(output: Output, line: String) -> ProgramResult {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
        ProgramResult { code, out: text(output.stdout), err: text(output.stderr), line }
    }

    /// Panics with all that the program said unless it ended with this code.
    #[track_caller]
    pub fn code(self, code: i32) -> ProgramResult {
        assert_eq!(self.code, code, "\n{}\n--- out\n{}\n--- err\n{}", self.line, self.out, self.err);
        self
    }

    /// Panics unless it succeeded.
    #[track_caller]
    pub fn ok(self) -> ProgramResult {
        self.code(0)
    }

    /// The lines of its output, sorted.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Runs a command to its end and gives the most memory that it ever held (KiB), looking often.
///
/// Panics if it can't be started.
pub fn peak(mut command: Command) -> (i32, u64) {
    let mut child = command.spawn().expect("started");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        // The kernel's own high-water mark, so that what comes and goes between two looks counts too.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = mark.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        if let Some(ended) = child.try_wait().expect("waited for") {
            return (ended.code().unwrap_or(-1), peak);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A temporary folder on another file system than [`temporary`]'s: in memory, or on a disk. `None` after saying that the test is skipped.
pub fn elsewhere() -> Option<TempDir> {
    let device = |folder: &TempDir| fs::metadata(folder.path()).map(|facts| facts.dev()).ok();
    let here = temporary("").ok().as_ref().and_then(device);
    let places = [PathBuf::from("/dev/shm"), env::temp_dir()];
    let found =
        places.iter().filter_map(|place| tempfile::tempdir_in(place).ok()).find(|folder| device(folder) != here);
    if found.is_none() {
        peers::skip("no second file system at /dev/shm");
    }
    found
}

/// A folder of its own with a home and a configuration. In arguments, `@x` stands for the path of `x` in it.
#[derive(Debug)]
pub struct Lab {
    root: TempDir,
    haul: PathBuf,
    rclone: Option<PathBuf>,
}

impl Lab {
    /// A new one for this `haul`.
    ///
    /// Panics if no folder can be made.
    pub fn new(haul: &str) -> Lab {
        let root = temporary("haul-lab-").expect("temporary folder");
        fs::create_dir(root.path().join("home")).expect("home");
        Lab { root, haul: haul.into(), rclone: peers::find("rclone") }
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The configuration file, in rclone's format.
    pub fn config(&self) -> PathBuf {
        self.path("rclone.conf")
    }

    /// The folder of the journals of jobs that were not done; it need not be there.
    pub fn jobs(&self) -> PathBuf {
        self.path("home/.local/state/haul/jobs")
    }

    /// The journals of jobs that were not done.
    pub fn journals(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.jobs()).into_iter().flatten().flatten();
        all.map(|journal| journal.path()).collect()
    }

    /// The bytes of all journals.
    pub fn journaled(&self) -> u64 {
        self.journals().iter().filter_map(|journal| Some(fs::metadata(journal).ok()?.len())).sum()
    }

    /// Whether the journals have grown by `bytes` since they were first asked about: parts were noted in them. Asked again until it is so.
    pub fn journal_grows(&self, bytes: u64) -> impl FnMut() -> bool {
        let mut first = None;
        move || match (self.journaled(), first) {
            (0, _) => false,
            (now, Some(first)) => now >= first + bytes,
            (now, None) => {
                first = Some(now);
                false
            }
        }
    }

    /// Waits until a journal is there and grows no more: what a run's last answers said is written soon after they came, not with them.
    ///
    /// Panics if that doesn't happen.
    pub fn journals_rest(&self) {
        let mut before = 0;
        let rest = until(|| {
            let now = self.journaled();
            let rest = now > 0 && now == before;
            before = now;
            rest
        });
        assert!(rest, "the journal doesn't rest");
    }

    /// A command that sees nothing of this machine's home, configuration and variables.
    pub fn command(&self, program: &Path) -> Command {
        // By its path: one that must be looked for in a new environment's PATH is started by a copy of this process, all of whose
        // memory the kernel goes through for that.
        let found = program.to_str().filter(|name| !name.contains('/')).and_then(peers::find);
        let mut command = Command::new(found.as_deref().unwrap_or(program));
        command.env_clear().current_dir(self.root.path());
        for name in ["PATH", "TMPDIR", "LD_LIBRARY_PATH"] {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("home/.config"))
            .env("XDG_CACHE_HOME", self.path("home/.cache"))
            .env("RCLONE_CONFIG", self.config())
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    fn fill(&self, args: &[&str]) -> Vec<String> {
        let root = self.root.path().display().to_string();
        args.iter().map(|arg| arg.replace('@', &format!("{root}/"))).collect()
    }

    /// Runs a program to its end, which comes after five minutes at the latest.
    ///
    /// Panics if it can't be started.
    pub fn run(&self, program: &Path, args: &[&str]) -> ProgramResult {
        let args = self.fill(args);
        let mut command = self.command(Path::new("timeout"));
        command.args(["-k", "5", "300"]).arg(program).args(&args);
        let output = command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        ProgramResult::new(output, format!("{} {}", program.display(), args.join(" ")))
    }

    /// Runs haul.
    pub fn haul(&self, args: &[&str]) -> ProgramResult {
        self.run(&self.haul, args)
    }

    /// Runs haul with something to read.
    ///
    /// Panics if it can't be started.
    pub fn haul_reading(&self, args: &[&str], input: &[u8]) -> ProgramResult {
        let mut child = self.start_reading(args);
        // A program that doesn't read all of it is no error here.
        let _ = child.stdin.take().expect("piped").write_all(input);
        ProgramResult::new(child.wait_with_output().expect("output"), args.join(" "))
    }

    /// A command that runs haul.
    pub fn haul_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.haul);
        command.args(self.fill(args));
        command
    }

    /// Starts haul and leaves it running. It is the caller's to wait for.
    ///
    /// Panics if it can't be started.
    pub fn start(&self, args: &[&str]) -> Child {
        self.start_with(&self.haul, args, Stdio::null())
    }

    /// The same with a pipe to read from.
    ///
    /// Panics if it can't be started.
    pub fn start_reading(&self, args: &[&str]) -> Child {
        self.start_with(&self.haul, args, Stdio::piped())
    }

    fn start_with(&self, program: &Path, args: &[&str], stdin: Stdio) -> Child {
        let mut command = self.command(program);
        command.args(self.fill(args)).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|e| panic!("{}: {e}", program.display()))
    }

    /// Waits for what was started.
    ///
    /// Panics if its output can't be read.
    pub fn end(&self, child: Child) -> ProgramResult {
        ProgramResult::new(child.wait_with_output().expect("output"), String::from("a started program"))
    }

    /// True if rclone is there; otherwise says that the test is skipped.
    pub fn has_rclone(&self) -> bool {
        if self.rclone.is_none() {
            peers::skip("rclone is not installed");
        }
        self.rclone.is_some()
    }

    /// Runs rclone.
    ///
    /// Panics if it isn't there: ask [`Lab::has_rclone`] first.
    pub fn rclone(&self, args: &[&str]) -> ProgramResult {
        self.run(self.rclone.as_deref().expect("rclone"), args)
    }

    /// Adds an S3 remote of MinIO's kind to the configuration.
    ///
    /// Panics if it can't be written.
    pub fn remote(&self, name: &str, endpoint: &str) {
        self.remote_of(name, "Minio", endpoint, &[]);
    }

    /// Adds an S3 remote of a provider to the configuration, with further options: by rclone itself where it is there.
    ///
    /// Panics if it can't be written.
    pub fn remote_of(&self, name: &str, provider: &str, endpoint: &str, more: &[(&str, &str)]) {
        let mut pairs = vec![
            ("provider", provider),
            ("endpoint", endpoint),
            ("access_key_id", servers::ACCESS_KEY),
            ("secret_access_key", servers::SECRET_KEY),
        ];
        pairs.extend(more);
        if self.rclone.is_some() {
            let options: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let mut args = vec!["config", "create", name, "s3"];
            args.extend(options.iter().map(String::as_str));
            self.rclone(&args).ok();
            return;
        }
        let options: String = pairs.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
        let mut file = fs::File::options().create(true).append(true).open(self.config()).expect("config");
        write!(file, "[{name}]\ntype = s3\n{options}\n").expect("config");
    }
}

/// Waits until something is so; gives up after three minutes.
pub fn until(mut so: impl FnMut() -> bool) -> bool {
    for _ in 0..18_000 {
        if so() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}
