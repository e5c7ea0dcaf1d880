//! rsync's options as typed, in order, the later winning; they become the engine's settings.

use super::{info, named_files::InputFiles, option_table::OPTIONS, owners};
use haul_core::{chmod::Chmod, job::DeleteWhen, keep::IdMap, links::Munge, text::nearest};
use haul_fs::owners::chown;
use haul_remotes::Environment;
use haul_terminal::table::{OptionRow, Support};
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

/// A rule or file of rules, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArg {
    /// `--filter`.
    Filter(Vec<u8>),
    /// `--include` and `--exclude`.
    Pattern(bool, Vec<u8>),
    /// `--include-from` and `--exclude-from`.
    From(bool, Vec<u8>),
}

/// The requested options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub recursive: bool,
    /// By `-r` itself, not by `-a`.
    pub recursive_named: bool,
    pub dirs: Option<bool>,
    pub links: bool,
    pub copy_links: bool,
    pub perms: bool,
    pub times: bool,
    pub group: bool,
    pub owner: bool,
    pub devices: bool,
    pub specials: bool,
    pub hard_links: bool,
    pub acls: bool,
    pub xattrs: bool,
    pub executability: bool,
    pub atimes: bool,
    pub omit_dir_times: bool,
    pub omit_link_times: bool,
    pub safe_links: bool,
    pub copy_unsafe_links: bool,
    /// Change to the targets of the source's symlinks.
    pub munge: Munge,
    pub copy_dirlinks: bool,
    pub keep_dirlinks: bool,
    /// Once: what is mounted is left out; twice: where it is mounted too.
    pub one_file_system: u8,
    pub prune_empty_dirs: bool,
    /// `None` if unset.
    pub whole_file: Option<bool>,
    /// Data between two hauls is compressed; `None` if unset.
    pub compress: Option<bool>,
    pub compress_level: Option<i32>,
    pub sparse: bool,
    pub fsync: bool,
    /// Transferred data is dropped from the page cache.
    pub drop_cache: bool,
    pub chmod: Vec<Chmod>,
    /// Owners for files that others own at the source, and the option that sets them.
    pub users: IdMap,
    pub groups: IdMap,
    pub mapped_by: Vec<(&'static str, &'static str)>,
    pub dry_run: bool,
    pub verbose: u8,
    pub quiet: bool,
    pub itemize: u8,
    pub out_format: Option<String>,
    pub stats: bool,
    pub progress: bool,
    /// Levels that `--info` sets, in order.
    pub info: Vec<(&'static str, u8)>,
    pub log_file: Option<Vec<u8>>,
    pub log_format: Option<String>,
    /// Stop this many minutes after the start.
    pub stop_after: Option<u64>,
    /// Stop at this time, as typed.
    pub stop_at: Option<String>,
    pub ignore_missing: bool,
    pub human: u8,
    pub raw_bytes: bool,
    pub list_only: bool,
    pub relative: Option<bool>,
    pub no_implied_dirs: bool,
    /// Deletions are to be found while files are transferred.
    pub delete_delay: bool,
    /// The whole list of files is to be made before anything is done, which haul never does: it only says so.
    pub whole_list: bool,
    pub mkpath: bool,
    pub checksum: bool,
    pub update: bool,
    pub ignore_times: bool,
    pub size_only: bool,
    pub modify_window: i64,
    pub existing: bool,
    pub ignore_existing: bool,
    pub max_size: Option<u64>,
    pub min_size: Option<u64>,
    pub inplace: bool,
    pub append: bool,
    pub append_verify: bool,
    pub delay_updates: bool,
    pub backup: bool,
    pub backup_dir: Option<Vec<u8>>,
    /// Has to be there, and has no use.
    pub temp_dir: Option<Vec<u8>>,
    pub suffix: Option<String>,
    pub compare_dest: Vec<Vec<u8>>,
    pub copy_dest: Vec<Vec<u8>>,
    pub link_dest: Vec<Vec<u8>>,
    pub delete: Option<DeleteWhen>,
    /// The options that say when.
    pub delete_whens: Vec<DeleteWhen>,
    pub delete_excluded: bool,
    pub ignore_errors: bool,
    pub force: bool,
    pub max_delete: Option<u64>,
    pub remove_source: bool,
    pub rules: Vec<RuleArg>,
    pub per_dir: u8,
    pub cvs: bool,
    pub files_from: Option<Vec<u8>>,
    /// These names instead of a file of them.
    pub names: Option<Vec<Vec<u8>>>,
    /// The program name in errors.
    pub program: &'static str,
    pub from0: bool,
    /// rsync leaves there what is cut short.
    pub partial_dir: Option<Vec<u8>>,
    pub partial: bool,
    /// `RSYNC_PARTIAL_DIR`, which counts with `--partial`.
    pub usual_partial_dir: Option<Vec<u8>>,
    /// Program to reach hosts.
    pub rsh: Option<String>,
    /// The program there.
    pub rsync_path: Option<String>,
    /// 4 or 6: of which kind a host's address is to be.
    pub family: Option<u8>,
    /// `CVSIGNORE`.
    pub cvs_words: Option<Vec<u8>>,
    /// The home folder, for the user's own `.cvsignore`.
    pub home: Option<PathBuf>,
    pub insecure_links: bool,
    /// Content of rules and lists named `-`.
    pub input: InputFiles,
    /// rsync's name of a checksum, or two.
    pub checksum_choice: Option<String>,
    pub bwlimit: Option<u64>,
    pub timeout: Option<u64>,
    pub contimeout: Option<u64>,
    pub help: bool,
    pub version: u8,
    /// Show the levels of `--info`.
    pub help_info: bool,
    /// `--debug=help`.
    pub help_debug: bool,
    /// Arguments that are no options: sources and the destination.
    pub paths: Vec<OsString>,
}

impl Options {
    /// These options with the variables and the home folder that rsync reads.
    pub fn within(self, environment: &Environment) -> Options {
        let variable = |name| environment.get(name).map(OsString::into_vec);
        Options {
            usual_partial_dir: variable("RSYNC_PARTIAL_DIR"),
            rsh: self.rsh.or_else(|| environment.get("RSYNC_RSH")?.into_string().ok()),
            cvs_words: variable("CVSIGNORE"),
            home: environment.home().map(PathBuf::from),
            ..self
        }
    }

    /// Reads the words after `haul rsync`.
    ///
    /// Errors: one line that names the option.
    pub fn parse(words: Vec<OsString>) -> Result<Options, String> {
        let mut options = Options { program: "haul rsync", ..Options::default() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"--" => {
                    options.paths.extend(words);
                    break;
                }
                [b'-', b'-', name @ ..] => options.long(name, &mut words)?,
                [b'-', letters @ ..] if !letters.is_empty() => options.shorts(letters, &mut words)?,
                _ => options.paths.push(word),
            }
        }
        options.settle()
    }

    fn long(&mut self, text: &[u8], words: &mut impl Iterator<Item = OsString>) -> Result<(), String> {
        let (name, value) = match text.iter().position(|b| *b == b'=') {
            Some(at) => (&text[..at], Some(text[at + 1..].to_vec())),
            None => (text, None),
        };
        let name = String::from_utf8_lossy(name);
        if let Some(entry) = OPTIONS.iter().find(|entry| !entry.long.is_empty() && entry.long == name) {
            let value = match (entry.value, value) {
                (Some(_), None) => Some(words.next().ok_or(format!("--{name} needs a value"))?.into_vec()),
                (None, Some(_)) => return Err(format!("--{name} takes no value")),
                (_, value) => value,
            };
            return self.take(entry, value.unwrap_or_default());
        }
        if let (Some(rest), None) = (name.strip_prefix("no-"), &value)
            && let Some(entry) =
                OPTIONS.iter().find(|e| e.long == rest || e.short.is_some_and(|c| rest == c.to_string()))
        {
            return self.negate(entry).ok_or_else(|| format!("--{name}: this option can't be taken back"));
        }
        let near = nearest(&name, OPTIONS.iter().map(|entry| entry.long).filter(|long| !long.is_empty()));
        let near = near.map_or("see haul rsync --help".into(), |near| format!("did you mean --{near}?"));
        Err(format!("--{name}: unknown option ({near})"))
    }

    fn shorts(&mut self, letters: &[u8], words: &mut impl Iterator<Item = OsString>) -> Result<(), String> {
        let shown = String::from_utf8_lossy(letters).into_owned();
        let mut rest = letters;
        while let [letter, after @ ..] = rest {
            let letter = char::from(*letter);
            let entry = OPTIONS.iter().find(|entry| entry.short == Some(letter));
            let entry =
                entry.ok_or_else(|| format!("-{letter} in -{shown}: unknown option (see haul rsync --help)"))?;
            rest = after;
            let value = match entry.value {
                Some(_) if !after.is_empty() => {
                    rest = b"";
                    after.strip_prefix(b"=").unwrap_or(after).to_vec()
                }
                Some(_) => words.next().ok_or(format!("-{letter} needs a value"))?.into_vec(),
                None => Vec::new(),
            };
            self.take(entry, value)?;
        }
        Ok(())
    }

    fn take(&mut self, entry: &OptionRow, value: Vec<u8>) -> Result<(), String> {
        if entry.here == Support::Refused {
            let name = entry.short.map_or(String::new(), |c| format!("-{c}, "));
            return Err(format!("{name}--{}: haul rsync doesn't support this option", entry.long));
        }
        let text = || String::from_utf8_lossy(&value).into_owned();
        let name = entry.long;
        let number = || text().parse::<u64>().map_err(|_| format!("--{name}={}: not a whole number", text()));
        match (name, entry.short) {
            ("archive", _) => self.archive(),
            ("recursive", _) => (self.recursive, self.recursive_named) = (true, true),
            ("links", _) => self.links = true,
            ("perms", _) => self.perms = true,
            ("times", _) => self.times = true,
            ("group", _) => self.group = true,
            ("owner", _) => self.owner = true,
            ("", Some('D')) => (self.devices, self.specials) = (true, true),
            ("devices", _) => self.devices = true,
            ("specials", _) => self.specials = true,
            ("hard-links", _) => self.hard_links = true,
            ("acls", _) => (self.acls, self.perms) = (true, true),
            ("xattrs", _) => self.xattrs = true,
            ("executability", _) => self.executability = true,
            ("atimes", _) => self.atimes = true,
            ("omit-dir-times", _) => self.omit_dir_times = true,
            ("omit-link-times", _) => self.omit_link_times = true,
            ("safe-links", _) => self.safe_links = true,
            ("copy-unsafe-links", _) => self.copy_unsafe_links = true,
            ("munge-links", _) => self.munge.off = true,
            ("remote-option", _) if value == b"--munge-links" => self.munge.on = true,
            ("remote-option", _) => {
                return Err(format!(
                    "-M{}: there is no rsync at the other end, and of its options haul knows --munge-links alone",
                    text()
                ));
            }
            ("copy-dirlinks", _) => self.copy_dirlinks = true,
            ("keep-dirlinks", _) => self.keep_dirlinks = true,
            ("one-file-system", _) => self.one_file_system = self.one_file_system.saturating_add(1),
            ("prune-empty-dirs", _) => self.prune_empty_dirs = true,
            ("whole-file", _) => self.whole_file = Some(true),
            ("compress" | "old-compress" | "new-compress", _) => self.compress = Some(true),
            ("compress-choice" | "zc", _) => self.compress = Some(compresses(&text())?),
            ("compress-level" | "zl", _) => {
                let level = text().parse().map_err(|_| format!("--{name}={}: not a whole number", text()))?;
                (self.compress, self.compress_level) = (Some(level != 0), Some(level).filter(|level| *level != 0));
            }
            ("sparse", _) => self.sparse = true,
            ("fsync", _) => self.fsync = true,
            ("copy-links", _) => self.copy_links = true,
            ("chmod", _) => self.chmod.extend(chmod(&text())?),
            ("chown", _) => {
                let (users, groups) = chown(&text())?;
                if !users.is_empty() {
                    self.mapped("usermap", "chown", "a user-affecting --chown")?;
                    (self.owner, self.users) = (true, users);
                }
                if !groups.is_empty() {
                    self.mapped("groupmap", "chown", "a group-affecting --chown")?;
                    (self.group, self.groups) = (true, groups);
                }
            }
            ("usermap", _) => {
                self.mapped("usermap", "usermap", "--usermap")?;
                (self.owner, self.users) = (true, owners::users(&text())?);
            }
            ("groupmap", _) => {
                self.mapped("groupmap", "groupmap", "--groupmap")?;
                (self.group, self.groups) = (true, owners::groups(&text())?);
            }
            ("dry-run", _) => self.dry_run = true,
            ("verbose", _) => self.verbose = self.verbose.saturating_add(1),
            ("quiet", _) => self.quiet = true,
            ("itemize-changes", _) => self.itemize = self.itemize.saturating_add(1),
            ("out-format" | "log-format", _) => self.out_format = Some(text()),
            ("log-file", _) => self.log_file = Some(value),
            ("log-file-format", _) => self.log_format = Some(text()),
            ("stop-after" | "time-limit", _) => {
                let minutes = text().parse().ok().filter(|minutes| *minutes > 0);
                self.stop_after = Some(minutes.ok_or_else(|| format!("invalid --stop-after value: {}", text()))?);
            }
            ("stop-at", _) => self.stop_at = Some(text()),
            ("ignore-missing-args", _) => self.ignore_missing = true,
            ("stats", _) => self.stats = true,
            ("progress", _) => self.progress = true,
            ("partial", _) => self.partial = true,
            ("", Some('P')) => (self.progress, self.partial) = (true, true),
            ("info", _) if value.eq_ignore_ascii_case(b"help") => self.help_info = true,
            ("debug", _) => self.help_debug |= value.eq_ignore_ascii_case(b"help"),
            ("checksum-choice" | "cc", _) => self.checksum_choice = Some(text()),
            ("info", _) => self.info.extend(info::parse(&text())?),
            ("human-readable", _) => self.human = self.human.saturating_add(1),
            ("8-bit-output", _) => self.raw_bytes = true,
            ("list-only", _) => self.list_only = true,
            ("relative", _) => self.relative = Some(true),
            ("dirs", _) => self.dirs = Some(true),
            ("no-implied-dirs" | "no-i-d", _) => self.no_implied_dirs = true,
            ("implied-dirs" | "i-d", _) => self.no_implied_dirs = false,
            ("inc-recursive" | "i-r", _) => self.whole_list = false,
            ("qsort", _) => self.whole_list = true,
            ("mkpath", _) => self.mkpath = true,
            ("checksum", _) => self.checksum = true,
            ("update", _) => self.update = true,
            ("ignore-times", _) => self.ignore_times = true,
            ("size-only", _) => self.size_only = true,
            ("modify-window", _) => {
                self.modify_window = text().parse().map_err(|_| format!("--{name}={}: not a whole number", text()))?;
            }
            ("existing" | "ignore-non-existing", _) => self.existing = true,
            ("ignore-existing", _) => self.ignore_existing = true,
            ("max-size", _) => self.max_size = Some(size(name, &text(), 1)?),
            ("min-size", _) => self.min_size = Some(size(name, &text(), 1)?),
            ("inplace", _) => self.inplace = true,
            ("append", _) => (self.append, self.append_verify) = (true, false),
            ("append-verify", _) => (self.append, self.append_verify) = (true, true),
            ("delay-updates", _) => self.delay_updates = true,
            ("backup", _) => self.backup = true,
            ("backup-dir", _) => (self.backup, self.backup_dir) = (true, Some(value)),
            ("suffix", _) => self.suffix = Some(text()),
            ("compare-dest", _) => self.compare_dest.push(value),
            ("copy-dest", _) => self.copy_dest.push(value),
            ("link-dest", _) => self.link_dest.push(value),
            ("delete", _) => _ = self.delete.get_or_insert(DeleteWhen::During),
            ("del" | "delete-during" | "delete-delay", _) => {
                self.delete_whens.push(DeleteWhen::During);
                self.delete_delay = name == "delete-delay";
                self.delete = Some(if self.delete_delay { DeleteWhen::After } else { DeleteWhen::During });
            }
            ("delete-before" | "delete-after", _) => {
                let when = if name == "delete-before" { DeleteWhen::Before } else { DeleteWhen::After };
                self.delete_whens.push(when);
                (self.delete, self.delete_delay) = (Some(when), false);
            }
            ("delete-excluded", _) => {
                self.delete_excluded = true;
                self.delete.get_or_insert(DeleteWhen::During);
            }
            ("ignore-errors", _) => self.ignore_errors = true,
            ("force", _) => self.force = true,
            ("max-delete", _) => {
                let max: i64 = text().parse().map_err(|_| format!("--{name}={}: not a whole number", text()))?;
                // rsync's treatment of a negative number.
                self.max_delete = Some(u64::try_from(max).unwrap_or(0));
            }
            ("remove-source-files", _) => self.remove_source = true,
            ("exclude", _) => self.rules.push(RuleArg::Pattern(false, value)),
            ("include", _) => self.rules.push(RuleArg::Pattern(true, value)),
            ("exclude-from", _) => self.rules.push(RuleArg::From(false, value)),
            ("include-from", _) => self.rules.push(RuleArg::From(true, value)),
            ("filter", _) => self.rules.push(RuleArg::Filter(value)),
            ("", Some('F')) => self.per_dir_rules(),
            ("cvs-exclude", _) => self.cvs = true,
            ("files-from", _) => self.files_from = Some(value),
            ("from0", _) => self.from0 = true,
            // Without a unit KiB.
            ("bwlimit", _) => self.bwlimit = Some(size(name, &text(), 1024)?).filter(|rate| *rate > 0),
            ("timeout", _) => self.timeout = Some(number()?).filter(|s| *s > 0),
            ("contimeout", _) => self.contimeout = Some(number()?).filter(|s| *s > 0),
            ("partial-dir", _) => self.partial_dir = Some(value).filter(|dir| !dir.is_empty()),
            ("max-alloc", _) if size(name, &text(), 1)? == 0 => {
                return Err("max-alloc must be greater than zero".into());
            }
            ("temp-dir", _) => self.temp_dir = Some(value),
            ("rsh", _) => self.rsh = Some(text()),
            ("rsync-path", _) => self.rsync_path = Some(text()),
            ("ipv4", _) => self.family = Some(4),
            ("ipv6", _) => self.family = Some(6),
            ("insecure-links", _) => self.insecure_links = true,
            ("version", _) => self.version = self.version.saturating_add(1),
            ("help", _) => self.help = true,
            // The rest changes nothing.
            _ => {}
        }
        Ok(())
    }

    /// Notes which option says whose files become whose: of users, and of groups, one alone may, and once.
    fn mapped(&mut self, map: &'static str, by: &'static str, once: &str) -> Result<(), String> {
        match self.mapped_by.iter().find(|(known, _)| *known == map) {
            Some((_, other)) if *other != by => return Err(format!("--{by} conflicts with prior --{other}.")),
            Some(_) => return Err(format!("You can only specify {once} once.")),
            None => self.mapped_by.push((map, by)),
        }
        Ok(())
    }

    fn archive(&mut self) {
        (self.recursive, self.links, self.perms, self.times) = (true, true, true, true);
        (self.group, self.owner, self.devices, self.specials) = (true, true, true, true);
    }

    fn per_dir_rules(&mut self) {
        self.per_dir += 1;
        let rule: &[u8] = if self.per_dir == 1 { b": /.rsync-filter" } else { b"- .rsync-filter" };
        self.rules.push(RuleArg::Filter(rule.to_vec()));
    }

    /// `--no-OPTION`; `None` for one that isn't on or off.
    fn negate(&mut self, entry: &OptionRow) -> Option<()> {
        let flag = match (entry.long, entry.short) {
            ("recursive", _) => &mut self.recursive,
            ("links", _) => &mut self.links,
            ("perms", _) => &mut self.perms,
            ("times", _) => &mut self.times,
            ("group", _) => &mut self.group,
            ("owner", _) => &mut self.owner,
            ("devices", _) => &mut self.devices,
            ("specials", _) => &mut self.specials,
            ("", Some('D')) => {
                self.specials = false;
                &mut self.devices
            }
            ("hard-links", _) => &mut self.hard_links,
            ("acls", _) => &mut self.acls,
            ("xattrs", _) => &mut self.xattrs,
            ("executability", _) => &mut self.executability,
            ("atimes", _) => &mut self.atimes,
            ("omit-dir-times", _) => &mut self.omit_dir_times,
            ("sparse", _) => &mut self.sparse,
            ("fsync", _) => &mut self.fsync,
            ("copy-links", _) => &mut self.copy_links,
            ("copy-unsafe-links", _) => &mut self.copy_unsafe_links,
            ("munge-links", _) => &mut self.munge.off,
            ("omit-link-times", _) => &mut self.omit_link_times,
            ("copy-dirlinks", _) => &mut self.copy_dirlinks,
            ("keep-dirlinks", _) => &mut self.keep_dirlinks,
            ("prune-empty-dirs", _) => &mut self.prune_empty_dirs,
            ("progress", _) => &mut self.progress,
            ("partial", _) => &mut self.partial,
            ("mkpath", _) => &mut self.mkpath,
            ("checksum", _) => &mut self.checksum,
            ("update", _) => &mut self.update,
            ("inplace", _) => &mut self.inplace,
            ("append", _) => &mut self.append,
            ("delay-updates", _) => &mut self.delay_updates,
            ("backup", _) => &mut self.backup,
            ("force", _) => &mut self.force,
            ("ignore-errors", _) => &mut self.ignore_errors,
            ("cvs-exclude", _) => &mut self.cvs,
            ("from0", _) => &mut self.from0,
            ("insecure-links", _) => &mut self.insecure_links,
            ("8-bit-output", _) => &mut self.raw_bytes,
            ("relative", _) => {
                self.relative = Some(false);
                return Some(());
            }
            ("dirs", _) => {
                self.dirs = Some(false);
                return Some(());
            }
            ("whole-file", _) => {
                self.whole_file = Some(false);
                return Some(());
            }
            ("compress", _) => {
                self.compress = Some(false);
                return Some(());
            }
            ("verbose", _) => {
                self.verbose = 0;
                return Some(());
            }
            ("itemize-changes", _) => {
                self.itemize = 0;
                return Some(());
            }
            ("one-file-system", _) => {
                self.one_file_system = 0;
                return Some(());
            }
            ("human-readable", _) => {
                self.human = u8::MAX;
                return Some(());
            }
            ("bwlimit", _) => {
                self.bwlimit = None;
                return Some(());
            }
            ("timeout" | "contimeout", _) => {
                (self.timeout, self.contimeout) = (None, None);
                return Some(());
            }
            ("max-delete", _) => {
                self.max_delete = None;
                return Some(());
            }
            ("inc-recursive" | "i-r", _) => {
                self.whole_list = true;
                return Some(());
            }
            // An option without effect changes nothing.
            _ if entry.here == Support::NoEffect => return Some(()),
            // An unsupported option is off.
            _ if entry.here == Support::Refused => return Some(()),
            _ => return None,
        };
        *flag = false;
        Some(())
    }

    /// Applies implied options, and rejects those that exclude each other.
    fn settle(mut self) -> Result<Options, String> {
        // -h alone asks for help.
        self.help |= self.human == 1 && self.paths.is_empty();
        if self.files_from.is_some() {
            self.relative.get_or_insert(true);
            self.dirs.get_or_insert(true);
            self.recursive &= self.recursive_named;
        }
        if self.list_only || self.paths.len() == 1 {
            self.dirs.get_or_insert(true);
        }
        if self.delete.is_some() && !self.recursive && self.dirs != Some(true) {
            return Err("--delete does not work without --recursive (-r) or --dirs (-d).".into());
        }
        if self.delete_whens.windows(2).any(|two| two[0] != two[1]) {
            return Err("You may not combine multiple --delete-WHEN options.".into());
        }
        let elsewhere = [&self.compare_dest, &self.copy_dest, &self.link_dest];
        if elsewhere.iter().filter(|dirs| !dirs.is_empty()).count() > 1 {
            return Err("choose one of --compare-dest, --copy-dest and --link-dest".into());
        }
        if self.append && self.whole_file == Some(true) {
            return Err("--append cannot be used with --whole-file".into());
        }
        if (self.delay_updates || self.partial_dir.is_some()) && (self.append || self.inplace) {
            let one = if self.append { "--append" } else { "--inplace" };
            let other = if self.delay_updates { "--delay-updates" } else { "--partial-dir" };
            return Err(format!("{one} cannot be used with {other}"));
        }
        if self.suffix.as_ref().is_some_and(|suffix| suffix.contains('/')) {
            return Err("--suffix can't contain slashes".into());
        }
        if self.backup && self.backup_dir.is_none() && self.suffix.as_deref() == Some("") {
            return Err("--suffix can't be empty without --backup-dir".into());
        }
        Ok(self)
    }
}

/// Whether this way of compressing is one: what haul has is zstd, whichever is named.
fn compresses(name: &str) -> Result<bool, String> {
    match name.to_ascii_lowercase().as_str() {
        "none" => Ok(false),
        "auto" | "zstd" | "lz4" | "zlibx" | "zlib" => Ok(true),
        _ => Err(format!("unknown compress name: {name}")),
    }
}

fn chmod(text: &str) -> Result<Vec<Chmod>, String> {
    haul_core::chmod::parse(text, haul_fs::umask()).map_err(|why| format!("--chmod: {why}"))
}

/// A size as rsync reads it: `K`, `KiB` for 1024, `KB` for 1000, a fraction, and `+1` or `-1` after it.
fn size(option: &str, text: &str, unit: u64) -> Result<u64, String> {
    let bad = || format!("--{option}={text}: not a size");
    let (body, more) = match text.strip_suffix("+1").map(|b| (b, 1)).or(text.strip_suffix("-1").map(|b| (b, -1))) {
        Some(split) if !split.0.is_empty() => split,
        _ => (text, 0),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let number: f64 = body[..end].parse().map_err(|_| bad())?;
    let (letter, rest) = body[end..].split_at(body[end..].len().min(1));
    let power = match letter.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(bad()),
    };
    let base: f64 = match rest.to_ascii_lowercase().as_str() {
        "" | "ib" => 1024.0,
        "b" => 1000.0,
        _ => return Err(bad()),
    };
    let unit = if letter.is_empty() { unit as f64 } else { base.powi(power) };
    Ok((number * unit) as u64).map(|bytes| bytes.saturating_add_signed(more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn options_are_read_as_rsync_reads_them() {
        let o = parse(&[
            "-aHv",
            "--no-o",
            "-f",
            "- *.o",
            "--exclude=x",
            "--exclude",
            "y",
            "-@1",
            "a",
            "-n",
            "b",
            "--",
            "-c",
        ]);
        let o = o.unwrap();
        assert!(o.recursive && o.links && o.hard_links && o.perms && o.group && !o.owner && o.dry_run && !o.checksum);
        assert_eq!((o.verbose, o.modify_window), (1, 1));
        assert_eq!(o.paths, ["a", "b", "-c"]);
        let rules = [
            RuleArg::Filter(b"- *.o".to_vec()),
            RuleArg::Pattern(false, b"x".to_vec()),
            RuleArg::Pattern(false, b"y".to_vec()),
        ];
        assert_eq!(o.rules, rules);
        assert!(!parse(&["-t", "--no-times", "a"]).unwrap().times);
        assert!(parse(&["--no-times", "-t", "a"]).unwrap().times);
        assert_eq!(parse(&["-FF", "a", "b"]).unwrap().rules.len(), 2);
        assert!(parse(&["-h"]).unwrap().help);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, message) in [
            (&["--nope", "a"][..], "--nope: unknown option (see haul rsync --help)"),
            (&["--delet", "a"], "--delet: unknown option (did you mean --delete?)"),
            (&["-aj", "a"], "-j in -aj: unknown option (see haul rsync --help)"),
            (&["--suffix"], "--suffix needs a value"),
            (&["-aN", "a"], "-N, --crtimes: haul rsync doesn't support this option"),
            (&["-W", "--append", "a"], "--append cannot be used with --whole-file"),
            (&["--delay-updates", "--inplace", "a"], "--inplace cannot be used with --delay-updates"),
            (&["--inplace", "--partial-dir=x", "a"], "--inplace cannot be used with --partial-dir"),
            (&["--append-verify", "--partial-dir=x", "a"], "--append cannot be used with --partial-dir"),
            (&["--max-size=x", "a"], "--max-size=x: not a size"),
            (&["--delete", "a", "b"], "--delete does not work without --recursive (-r) or --dirs (-d)."),
            (&["--delete-before", "--del", "-r", "a"], "You may not combine multiple --delete-WHEN options."),
            (&["--chown=1", "--usermap=*:2", "a"], "--usermap conflicts with prior --chown."),
            (&["--groupmap=*:2", "--chown=:1", "a"], "--chown conflicts with prior --groupmap."),
            (&["--chown=1", "--chown=2", "a"], "You can only specify a user-affecting --chown once."),
            (&["--max-alloc=0", "a"], "max-alloc must be greater than zero"),
            (&["--archive=x", "a"], "--archive takes no value"),
            (&["--no-exclude", "a"], "--no-exclude: this option can't be taken back"),
        ] {
            assert_eq!(parse(words).unwrap_err(), message);
        }
    }

    #[test]
    fn sizes_have_rsyncs_units() {
        for (text, unit, bytes) in [
            ("10", 1, 10),
            ("10", 1024, 10240),
            ("1.5K", 1, 1536),
            ("1kb", 1, 1000),
            ("2MiB", 1, 2 << 20),
            ("1K-1", 1, 1023),
            ("1m+1", 1024, (1 << 20) + 1),
        ] {
            assert_eq!(size("x", text, unit), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn no_option_is_there_twice() {
        for (at, entry) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[at + 1..] {
                assert!(entry.long.is_empty() || entry.long != other.long, "--{}", entry.long);
                assert!(entry.short.is_none() || entry.short != other.short, "-{:?}", entry.short);
            }
        }
    }
}
