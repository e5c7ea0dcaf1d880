//! Arguments: the options of dcp, dsync, dcmp and drm, and their paths. Only rank 0 looks at paths.

use crate::{
    generate::Generate,
    work::{Job, Raw, Root, Verb},
};
use clap::{Args, Parser, Subcommand};
use haul_core::sources::{self, SourceKind};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

/// Copies, compares and deletes on many nodes, with MPI.
#[derive(Parser, Debug)]
#[command(name = "haul-mpi", version, max_term_width = 110, after_help = AFTER)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The requested command.
#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // One a process.
pub enum Command {
    #[command(flatten)]
    Job(JobRequest),
    /// Write man pages and completion scripts
    #[command(hide = true)]
    Generate(Generate),
}

const AFTER: &str = "Start it as any MPI program: srun -n 16 haul-mpi dcp -p SRC DST, or mpirun -n 16 haul-mpi ....\n\
    To continue an interrupted run, run the same command again. Remotes (s3:bucket) need haul fleet instead.\n\
    Exit codes: 0; 1 after an error, or if check found differences; 20 if stopped by a signal. sync has rsync's exit codes.";

/// A job that is asked for.
#[derive(Subcommand, Debug)]
pub enum JobRequest {
    /// Copy as dcp does: into DEST if that is a directory, otherwise as DEST; SRC/ means its contents. Existing files are replaced
    Dcp(Dcp),
    /// Make DST equal to SRC as dsync does: copy the contents of SRC into DST
    Sync(Sync),
    /// Compare as dcmp does, by content
    Check(Check),
    /// Delete as drm does
    Delete(Delete),
}

#[derive(Args, Debug)]
struct Common {
    /// Show a line of progress every N seconds
    #[arg(long, value_name = "N")]
    progress: Option<u64>,
    /// Show each name
    #[arg(short, long)]
    verbose: bool,
    /// Show errors only
    #[arg(short, long)]
    quiet: bool,
    /// Make each rank log its actions to FILE.RANK, as lines of JSON
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
    /// Treat a rank as lost after this many seconds of silence: others do its work
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// Give a file or directory to other ranks if the file system doesn't answer for this many seconds; the third time is an error
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    hang: u64,
}

#[derive(Args, Debug)]
struct Copying {
    /// Extended attributes to keep
    #[arg(short = 'X', long, value_name = "OPT", default_value = "all", value_parser = ["none", "all", "non-lustre", "libattr"])]
    xattrs: String,
    /// Turn runs of zeros into holes; holes of the source are always kept
    #[arg(short = 'S', long)]
    sparse: bool,
    /// Don't leave copied data in the page cache
    #[arg(short = 's', long, alias = "synchronous")]
    direct: bool,
    /// Copy what symlinks point to
    #[arg(short = 'L', long, overrides_with = "no_dereference")]
    dereference: bool,
    /// Copy symlinks as symlinks (the default)
    #[arg(short = 'P', long)]
    no_dereference: bool,
}

#[derive(Args, Debug)]
pub struct Dcp {
    /// Keep permissions, owner, group, times of directories, ACLs and hard links
    #[arg(short, long)]
    preserve: bool,
    /// Copy only the files named in this file: dwalk's output, or names separated by newlines or NULs. Directories are copied without their contents
    #[arg(short, long, value_name = "FILE")]
    input: Option<OsString>,
    #[command(flatten)]
    copying: Copying,
    /// No effect: haul-mpi chooses buffer sizes
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = size)]
    bufsize: Option<String>,
    /// No effect: haul-mpi chooses how to divide large files
    #[arg(short = 'k', long, value_name = "SIZE", value_parser = size)]
    chunksize: Option<String>,
    #[command(flatten)]
    common: Common,
    /// SRC... DEST
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Sync {
    /// Delete files that aren't in SRC, after everything is copied and if there was no error
    #[arg(short = 'D', long)]
    delete: bool,
    /// Let an empty source delete everything at the destination
    #[arg(long)]
    allow_empty_source: bool,
    /// Compare files of one size and time byte by byte
    #[arg(short, long)]
    contents: bool,
    /// Change nothing; show what would be done
    #[arg(short = 'n', long)]
    dryrun: bool,
    /// Hard-link to files in DIR whose size, time, owner, permissions and other kept attributes are the same
    #[arg(long, value_name = "DIR")]
    link_dest: Option<OsString>,
    #[command(flatten)]
    copying: Copying,
    /// No effect: files are finished one by one, so an interrupted run can always continue
    #[arg(short = 'b', long, value_name = "N")]
    batch_files: Option<u64>,
    /// No effect: haul-mpi chooses buffer sizes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bufsize: Option<String>,
    /// No effect: haul-mpi chooses how to divide large files
    #[arg(long, value_name = "SIZE", value_parser = size)]
    chunksize: Option<String>,
    #[command(flatten)]
    common: Common,
    /// The source
    src: OsString,
    /// The destination
    dst: OsString,
}

#[derive(Args, Debug)]
pub struct Check {
    /// Compare sizes and times only
    #[arg(short, long)]
    lite: bool,
    /// No effect: haul-mpi chooses buffer sizes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bufsize: Option<String>,
    /// No effect: haul-mpi chooses how to divide large files
    #[arg(long, value_name = "SIZE", value_parser = size)]
    chunksize: Option<String>,
    #[command(flatten)]
    common: Common,
    /// The first path
    src: OsString,
    /// The second path
    dst: OsString,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// Delete nothing; show what would be deleted
    #[arg(short = 'n', long)]
    dryrun: bool,
    /// No effect: files are never looked up before they are deleted
    #[arg(short, long)]
    lite: bool,
    /// No effect: files are never looked up before they are deleted
    #[arg(long)]
    stat: bool,
    /// No effect: files are always deleted during the walk
    #[arg(long)]
    aggressive: bool,
    #[command(flatten)]
    common: Common,
    /// Paths to delete
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

impl JobRequest {
    /// The command.
    pub fn verb(&self) -> Verb {
        match self {
            JobRequest::Dcp(_) => Verb::Dcp,
            JobRequest::Sync(_) => Verb::Sync,
            JobRequest::Check(_) => Verb::Check,
            JobRequest::Delete(_) => Verb::Delete,
        }
    }

    /// The trees that are typed.
    fn paths(&self) -> Vec<&OsStr> {
        match self {
            JobRequest::Dcp(Dcp { paths, .. }) | JobRequest::Delete(Delete { paths, .. }) => {
                paths.iter().map(OsString::as_os_str).collect()
            }
            JobRequest::Sync(Sync { src, dst, .. }) | JobRequest::Check(Check { src, dst, .. }) => vec![src, dst],
        }
    }

    /// The trees of a `dcp` as they were before DEST was there: an earlier run of the same command may have made it. `None` where it can't
    /// have: what becomes of a single file is no directory.
    pub fn before(&self) -> Option<Vec<Root>> {
        match self {
            JobRequest::Dcp(Dcp { paths, copying, .. }) if paths.len() == 2 => {
                nested(paths, copying.dereference, false)
                    .ok()
                    .filter(|roots| roots.iter().all(|root| root.one.is_none()))
            }
            _ => None,
        }
    }

    /// The job of this command line.
    ///
    /// Errors: one line: a remote, or paths that don't go together.
    pub fn job(self) -> Result<Job, String> {
        let verb = self.verb();
        self.paths().into_iter().try_for_each(|path| no_remote(verb, path))?;
        match self {
            JobRequest::Dcp(Dcp { preserve, input, copying, common, paths, .. }) => {
                let roots = nested(&paths, copying.dereference, true)?;
                let job = Job { preserve, ..base(verb, roots, common) };
                let job = match input {
                    Some(list) => listed(job, &list, &paths[0])?,
                    None => job,
                };
                Ok(with(job, &copying))
            }
            JobRequest::Sync(Sync {
                delete,
                allow_empty_source,
                contents,
                dryrun,
                link_dest,
                copying,
                common,
                src,
                dst,
                ..
            }) => {
                let roots = vec![beside(&src, &dst, copying.dereference)?];
                let to = absolute(&dst)?;
                becomes(&roots[0], &src, &to)?;
                has_parent(&to)?;
                let link_dest = link_dest.map(|dir| link_folder(&dir, &to)).transpose()?;
                let base = base(verb, roots, common);
                let base = Job { allow_empty_source, dry_run: dryrun, ..base };
                let job = Job { preserve: true, delete, contents, link_dest, ..base };
                Ok(with(job, &copying))
            }
            JobRequest::Check(Check { lite, common, src, dst, .. }) => {
                let roots = vec![beside(&src, &dst, false)?];
                Ok(Job { contents: !lite, ..base(verb, roots, common) })
            }
            JobRequest::Delete(Delete { dryrun, common, paths, .. }) => {
                let mut roots = Vec::new();
                for path in &paths {
                    let path = absolute(path)?;
                    if path.parent().is_none() {
                        return Err("Refused to delete everything: / isn't deleted".into());
                    }
                    roots.push(match is_dir(&path, false) {
                        true => Root { src: raw(&path), dst: raw(&path), one: None },
                        false => {
                            let (above, name) = split(&path)?;
                            Root {
                                src: raw(&above),
                                dst: raw(&above),
                                one: Some((key(&path, &name, false), Raw::new())),
                            }
                        }
                    });
                }
                Ok(Job { dry_run: dryrun, ..base(verb, roots, common) })
            }
        }
    }
}

/// A number of bytes above zero, with a unit or without, as mpiFileUtils reads it: 4194304, 4M, 1.5GB.
fn size(text: &str) -> Result<String, &'static str> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = unit.to_ascii_lowercase();
    let unit = if unit.is_empty() { "b" } else { &unit };
    let known = matches!(unit.strip_suffix('b').unwrap_or(unit), "" | "k" | "m" | "g" | "t" | "p" | "e");
    let amount = number.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount > 0.0);
    match known && !number.starts_with('+') && amount.is_some() {
        true => Ok(text.to_owned()),
        false => Err("not a size, such as 4MB"),
    }
}

fn base(verb: Verb, roots: Vec<Root>, common: Common) -> Job {
    let Common { progress, verbose, quiet, log, patience, hang } = common;
    Job {
        verb,
        roots,
        preserve: false,
        xattrs: false,
        sparse: false,
        direct: false,
        follow: false,
        delete: false,
        allow_empty_source: false,
        contents: false,
        input: None,
        typed_src: None,
        link_dest: None,
        dry_run: false,
        verbose: verbose && !quiet,
        quiet,
        progress: progress.filter(|every| *every > 0 && !quiet),
        resuming: false,
        since: Vec::new(),
        patience: patience.max(1),
        hang: hang.max(1),
        log,
    }
}

fn with(job: Job, copying: &Copying) -> Job {
    let Copying { xattrs, sparse, direct, dereference, .. } = copying;
    Job { xattrs: xattrs != "none", sparse: *sparse, direct: *direct, follow: *dereference, ..job }
}

/// A folder of a remote's name would be made here, and hold what was meant for the remote.
///
/// Errors: one line, what to do instead, where a path looks like a remote's and nothing here has its name.
fn no_remote(verb: Verb, path: &OsStr) -> Result<(), String> {
    let Some(Component::Normal(first)) = Path::new(path).components().next() else { return Ok(()) };
    if !first.as_bytes().contains(&b':') || Path::new(first).symlink_metadata().is_ok() {
        return Ok(());
    }
    let instead = match verb {
        Verb::Dcp | Verb::Sync => "haul fleet spreads copies to and from remotes over nodes",
        Verb::Check => "haul check compares remotes, on one node",
        Verb::Delete => "haul delete and haul purge delete on remotes, on one node",
    };
    let path = path.display();
    Err(format!(
        "{path} is a remote, and haul-mpi works on file systems that all ranks see: {instead} (a file or directory of that name here is \
         ./{path})"
    ))
}

/// A job that copies what a list names.
fn listed(job: Job, list: &OsStr, typed: &OsStr) -> Result<Job, String> {
    match &job.roots[..] {
        [Root { one: None, .. }] => {}
        [_] => return Err(format!("{}: --input takes names in a directory, and this is none", typed.display())),
        _ => return Err("--input takes one SRC and a DEST".into()),
    }
    let typed = typed.as_bytes();
    let bare = typed.iter().rposition(|b| *b != b'/').map_or(typed, |last| &typed[..=last]);
    // By a dot nothing is named: names in it are what they are.
    let typed_src = Some(bare).filter(|bare| *bare != b".").map(Raw::from);
    Ok(Job { input: Some(raw(&absolute(list)?)), typed_src, ..job })
}

/// dcp's rule: cp's, but for a slash at the end of a directory, which is rsync's. Without `into`, as if DEST wasn't there.
fn nested(paths: &[OsString], follow: bool, into: bool) -> Result<Vec<Root>, String> {
    let [sources @ .., dest] = paths else { return Err("it needs SRC and DEST".into()) };
    let dest = absolute(dest)?;
    let into = into && is_dir(&dest, true);
    if sources.len() > 1 && !into {
        return Err(format!("{}: several sources need a directory that is there", dest.display()));
    }
    let places: Vec<_> = sources
        .iter()
        .map(|source| {
            let slash = source.as_bytes().ends_with(b"/");
            let source = absolute(source)?;
            let (above, name) = match source.file_name() {
                Some(name) => (source.parent().unwrap_or(Path::new("/")).to_path_buf(), name.to_owned()),
                None => (source.clone(), OsString::new()),
            };
            // As dcp: what is in a directory whose name ends in a slash goes there without that name.
            let by_name = into && !(slash && is_dir(&source, follow));
            let to = if by_name { dest.join(&name) } else { dest.clone() };
            Ok(((above, name), (source, to)))
        })
        .collect::<Result<_, String>>()?;
    let (names, places): (Vec<_>, Vec<_>) = places.into_iter().unzip();
    if places.len() > 1 {
        sources::check_places(&places, &|path| {
            if path.symlink_metadata().is_err() {
                return SourceKind::Missing;
            }
            match is_dir(path, follow) {
                // What can't be read is told by the copy.
                true => {
                    SourceKind::Dir(path.read_dir().into_iter().flatten().flatten().map(|e| e.file_name()).collect())
                }
                false => SourceKind::File,
            }
        })?;
    }
    let roots = names.iter().zip(&places).map(|((above, name), (source, to))| {
        has_parent(to)?;
        pair(source, (above, name), to, follow)
    });
    roots.collect()
}

/// dsync's rule: what is in one goes into the other.
fn beside(src: &OsStr, dst: &OsStr, follow: bool) -> Result<Root, String> {
    let (mut path, dst) = (absolute(src)?, absolute(dst)?);
    // By a slash at its end a link stands for what it leads to.
    if src.as_bytes().ends_with(b"/") && is_dir(&path, true) {
        path = path.canonicalize().unwrap_or(path);
    }
    let src = path;
    let (above, name) = match src.file_name() {
        Some(name) => (src.parent().unwrap_or(Path::new("/")).to_path_buf(), name.to_owned()),
        None => (src.clone(), OsString::new()),
    };
    pair(&src, (&above, &name), &dst, follow)
}

fn pair(src: &Path, (above, name): (&Path, &OsStr), dst: &Path, follow: bool) -> Result<Root, String> {
    if is_dir(src, follow) {
        return Ok(Root { src: raw(src), dst: raw(dst), one: None });
    }
    if src.symlink_metadata().is_err() {
        return Err(format!("{}: no such file or directory", src.display()));
    }
    if is_one_file(src, dst, follow) {
        return Err(format!("Refused to copy {} to itself", src.display()));
    }
    let (to, to_name) = split(dst)?;
    let one = Some((key(src, name, follow), key_like(src, &to_name, follow)));
    Ok(Root { src: raw(above), dst: raw(&to), one })
}

/// Rejects an entry other than a directory that would become an existing directory, with all its contents.
///
/// Errors: one line.
fn becomes(root: &Root, src: &OsStr, dst: &Path) -> Result<(), String> {
    let Some((from, _)) = root.one.as_ref().filter(|_| is_dir(dst, true)) else { return Ok(()) };
    let name = dst.join(OsStr::from_bytes(haul_core::key::path(from)));
    Err(format!(
        "Refused to replace the directory {} by {}, which isn't one: {} copies it into that",
        dst.display(),
        src.display(),
        name.display()
    ))
}

/// Errors: one line: the directory isn't there in which this is to be made.
fn has_parent(dst: &Path) -> Result<(), String> {
    match dst.parent().filter(|above| !is_dir(above, true)) {
        Some(above) => Err(format!(
            "{}: can't be made, since {above} isn't a directory that is there (mkdir -p {above} makes it)",
            dst.display(),
            above = above.display()
        )),
        None => Ok(()),
    }
}

/// The folder of `--link-dest`: one that is there, from which there can be hard links in the destination.
fn link_folder(dir: &OsStr, dst: &Path) -> Result<Raw, String> {
    use std::os::unix::fs::MetadataExt as _;
    let dir = absolute(dir)?;
    let device = |path: &Path| path.metadata().ok().map(|st| st.dev());
    if !is_dir(&dir, true) {
        return Err(format!("--link-dest {}: no such directory", dir.display()));
    }
    // The destination is made in the last of its folders that is there.
    if dst.ancestors().find_map(device) != device(&dir) {
        let (dir, dst) = (dir.display(), dst.display());
        return Err(format!(
            "Refused --link-dest {dir}: it is on another file system than {dst}, where files can't be hard links to it"
        ));
    }
    Ok(raw(&dir))
}

fn split(path: &Path) -> Result<(PathBuf, OsString), String> {
    let name = path.file_name().ok_or_else(|| format!("{}: has no name", path.display()))?;
    Ok((path.parent().unwrap_or(Path::new("/")).to_path_buf(), name.to_owned()))
}

fn key(path: &Path, name: &OsStr, follow: bool) -> Raw {
    key_like(path, name, follow)
}

/// The key that a file of this kind has under a name.
fn key_like(path: &Path, name: &OsStr, follow: bool) -> Raw {
    let link = !follow && path.symlink_metadata().is_ok_and(|st| st.is_symlink());
    let key = if link { haul_core::Key::symlink(name.as_bytes()) } else { haul_core::Key::new(name.as_bytes()) };
    Raw::from(key.as_bytes())
}

fn raw(path: &Path) -> Raw {
    Raw::from(path.as_os_str().as_bytes())
}

fn is_dir(path: &Path, follow: bool) -> bool {
    let st = if follow { path.metadata() } else { path.symlink_metadata() };
    st.is_ok_and(|st| st.is_dir())
}

/// Under two names, too.
fn is_one_file(a: &Path, b: &Path, follow: bool) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |path: &Path| {
        let st = if follow { path.metadata() } else { path.symlink_metadata() };
        st.ok().map(|st| (st.dev(), st.ino()))
    };
    a == b || inode(a).is_some_and(|a| inode(b) == Some(a))
}

/// The path from the root, without dots and slashes at its end.
fn absolute(path: &OsStr) -> Result<PathBuf, String> {
    let whole = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut named = PathBuf::new();
    for part in whole.components() {
        match part {
            // The parent of a symlink's target is another folder than the one written above the link.
            Component::ParentDir => {
                named = named.canonicalize().unwrap_or(named);
                named.pop();
            }
            part => named.push(part),
        }
    }
    Ok(PathBuf::from(OsString::from_vec(named.into_os_string().into_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn what_would_eat_itself_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
        std::fs::create_dir_all(dir.join("src/data")).unwrap();
        std::os::unix::fs::symlink("src/data", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("src", dir.join("other")).unwrap();
        let refused = |words: [&str; 3]| {
            let [verb, src, dst] = words;
            let (src, dst) = (at(src), at(dst));
            let line = typed(&[verb, &src, &dst]).and_then(|job| crate::overlap::check(&job)).err()?;
            Some(line.strip_prefix(&format!("Refused to copy {src} to {dst}: ")).unwrap_or(&line).to_owned())
        };
        let (same, inside, around) = ("they are the same directory", "it is in the source", "the source is in it");
        for (words, why) in [
            (["sync", "src", "src"], same),
            (["sync", "src", "other"], same),
            (["sync", "src", "src/new"], inside),
            (["dcp", "src", "src/new"], inside),
            (["dcp", "src", "link/new"], inside),
            (["sync", "src", "link"], inside),
            (["sync", "src/data", "src"], around),
            (["sync", "src/data", "other"], around),
            (["check", "src", "other"], same),
        ] {
            assert_eq!(refused(words).as_deref(), Some(why), "{words:?}");
        }
        assert!(
            refused(["dcp", "src/data", "other"]).is_some_and(|line| line.ends_with(same)),
            "it goes to where it is"
        );
        let linked = |dir: &str, dst: &str| {
            let (dir, src, dst) = (at(dir), at("src"), at(dst));
            typed(&["sync", "--link-dest", &dir, &src, &dst]).and_then(|job| crate::overlap::check(&job)).err()
        };
        assert_eq!(linked("none", "new"), Some(format!("--link-dest {}: no such directory", at("none"))));
        std::fs::create_dir_all(dir.join("old/part")).unwrap();
        for other in ["old", "old/part"] {
            let line = format!("Refused --link-dest {}: it is in the destination", at(other));
            assert_eq!(linked(other, "old"), Some(line));
        }
        assert_eq!(linked("old", "old/part/new"), None);
        assert_eq!(linked("old", "new"), None);
        if std::path::Path::new("/proc/self").exists() {
            let (src, dst) = (at("src"), at("new"));
            let line = typed(&["sync", "--link-dest", "/proc", &src, &dst]).unwrap_err();
            assert!(line.starts_with("Refused --link-dest /proc: it is on another file system than "), "{line}");
        }
        for words in
            [["sync", "src", "new"], ["sync", "src", "src2"], ["dcp", "link", "src/new"], ["check", "src/data", "src"]]
        {
            assert_eq!(refused(words), None, "{words:?}");
        }
    }

    fn typed(words: &[&str]) -> Result<Job, String> {
        match Cli::try_parse_from([&["haul-mpi"], words].concat()).map_err(|e| e.to_string())?.command {
            Command::Job(asked) => asked.job(),
            Command::Generate(_) => panic!("no job"),
        }
    }

    #[test]
    fn options_without_effect_are_checked_too() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["haul-mpi"], words].concat()).map_err(|e| e.to_string());
        assert!(parse(&["dcp", "-b", "4M", "-k1.5gb", "a", "b"]).is_ok());
        assert!(parse(&["sync", "-b", "1000", "--bufsize", "4194304", "a", "b"]).is_ok());
        for (verb, option) in [("dcp", "--bufsize"), ("dcp", "-k"), ("sync", "--chunksize"), ("check", "--bufsize")] {
            for size in ["0", "4X", "", "M", "inf", "+4"] {
                let line = parse(&[verb, option, size, "a", "b"]).unwrap_err();
                assert!(line.contains(": not a size, such as 4MB") || size.is_empty(), "{line}");
            }
        }
        assert!(parse(&["sync", "-b", "x", "a", "b"]).is_err());
    }

    #[test]
    fn a_remote_is_refused_and_nothing_of_its_name_is_made() {
        let line = |path: &str, instead: &str| {
            format!(
                "{path} is a remote, and haul-mpi works on file systems that all ranks see: {instead} (a file or directory of that name here \
                 is ./{path})"
            )
        };
        let fleet = "haul fleet spreads copies to and from remotes over nodes";
        for (words, path, instead) in [
            (&["dcp", "/", "r:b/dir"][..], "r:b/dir", fleet),
            (&["dcp", "r:b/dir", "/tmp"], "r:b/dir", fleet),
            (&["sync", "/tmp", ":s3,provider=AWS:b"], ":s3,provider=AWS:b", fleet),
            (&["check", "/tmp", "r:"], "r:", "haul check compares remotes, on one node"),
            (&["delete", "r:b"], "r:b", "haul delete and haul purge delete on remotes, on one node"),
        ] {
            assert_eq!(typed(words).unwrap_err(), line(path, instead));
        }
        assert_eq!(no_remote(Verb::Dcp, OsStr::new("./r:b")), Ok(()));
        assert_eq!(no_remote(Verb::Dcp, OsStr::new("/data/12:30")), Ok(()));
        assert_eq!(no_remote(Verb::Dcp, OsStr::new("runs/12:30")), Ok(()));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn a_run_of_before_made_a_directory_of_a_directory_alone() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        ["src", "dst"].iter().for_each(|name| std::fs::create_dir(dir.join(name)).unwrap());
        std::fs::write(dir.join("f"), "x").unwrap();
        let before = |src: &str| {
            let typed = Cli::try_parse_from([
                OsStr::new("haul-mpi"),
                OsStr::new("dcp"),
                dir.join(src).as_ref(),
                dir.join("dst").as_ref(),
            ]);
            match typed.unwrap().command {
                Command::Job(asked) => asked.before(),
                Command::Generate(_) => panic!("no job"),
            }
        };
        let root = Root { src: raw(&dir.join("src")), dst: raw(&dir.join("dst")), one: None };
        assert_eq!(before("src"), Some(vec![root]));
        assert_eq!(before("f"), None, "it can't become what is a directory by now");
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn a_source_goes_into_a_directory_or_becomes_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
        std::fs::create_dir_all(dir.join("src")).unwrap();
        std::fs::create_dir_all(dir.join("dst")).unwrap();
        std::fs::write(dir.join("f"), "x").unwrap();
        let roots = |words: &[&str]| {
            let job = typed(words).unwrap();
            let text = |raw: &Raw| String::from_utf8_lossy(raw).replace(&at(""), "");
            job.roots.iter().map(|root| (text(&root.src), text(&root.dst))).collect::<Vec<_>>()
        };
        assert_eq!(roots(&["dcp", &at("src"), &at("dst")]), [("src".into(), "dst/src".into())]);
        assert_eq!(roots(&["dcp", &at("src/."), &at("dst")]), [("src".into(), "dst/src".into())]);
        assert_eq!(roots(&["dcp", &at("src/"), &at("dst")]), [("src".into(), "dst".into())]);
        assert_eq!(roots(&["dcp", "-p", &at("src"), &at("new")]), [("src".into(), "new".into())]);
        assert_eq!(roots(&["sync", &at("src"), &at("dst")]), [("src".into(), "dst".into())]);
        let job = typed(&["dcp", &at("f"), &at("dst")]).unwrap();
        assert_eq!(job.roots[0].one, Some((Raw::from("f"), Raw::from("f"))));
        std::fs::create_dir(dir.join("other")).unwrap();
        std::fs::write(dir.join("other/f"), "y").unwrap();
        assert_eq!(
            typed(&["dcp", &at("f"), &at("other/f"), &at("dst")]).unwrap_err(),
            format!("Refused to copy both {} and {} to {}", at("f"), at("other/f"), at("dst/f"))
        );
        assert_eq!(
            roots(&["dcp", &at("src/"), &at("other/"), &at("dst")]),
            [("src".into(), "dst".into()), ("other".into(), "dst".into())]
        );
        assert_eq!(
            typed(&["dcp", &at("other/"), &at("f"), &at("dst")]).unwrap_err(),
            format!("Refused to copy both {} and {} to {}", at("other/f"), at("f"), at("dst/f"))
        );
        std::fs::hard_link(dir.join("f"), dir.join("same")).unwrap();
        assert_eq!(
            typed(&["dcp", &at("f"), &at("same")]).unwrap_err(),
            format!("Refused to copy {} to itself", at("f"))
        );
        assert_eq!(
            typed(&["dcp", &at("src"), &at("f"), &at("new")]).unwrap_err(),
            format!("{}: several sources need a directory that is there", at("new"))
        );
        assert_eq!(
            typed(&["dcp", &at("none"), &at("new")]).unwrap_err(),
            format!("{}: no such file or directory", at("none"))
        );
        for verb in ["dcp", "sync"] {
            assert_eq!(
                typed(&[verb, &at("src"), &at("no/new")]).unwrap_err(),
                format!(
                    "{}: can't be made, since {no} isn't a directory that is there (mkdir -p {no} makes it)",
                    at("no/new"),
                    no = at("no")
                )
            );
        }
        std::os::unix::fs::symlink("src", dir.join("link")).unwrap();
        for (src, into) in [("f", "dst"), ("link", "dst"), ("f", "link")] {
            assert_eq!(
                typed(&["sync", "-D", &at(src), &at(into)]).unwrap_err(),
                format!(
                    "Refused to replace the directory {} by {}, which isn't one: {} copies it into that",
                    at(into),
                    at(src),
                    at(&format!("{into}/{src}"))
                )
            );
        }
        // A trailing slash asks for the target of a link.
        assert_eq!(roots(&["sync", &at("link/"), &at("dst")]), [("src".into(), "dst".into())]);
    }
}
