//! `haul dcp`: takes the options of mpiFileUtils' dcp for one node, and cp's rule for the destination. `haul-rsync` makes the
//! copy; the words are dcp's.

use anyhow::Result;
use haul_core::{
    name_list,
    sources::{self, SourceKind},
    text::nearest,
    units::size_decimal,
};
use haul_rsync::{Context, Reporting, Request, Stats};
use haul_terminal::{
    one_line, print,
    table::{OptionRow, Support, TITLES},
};
use jiff::Zoned;
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::BufReader,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// Every option of dcp's, and what becomes of it here.
pub const OPTIONS: &[OptionRow] = &[
    option(
        Some('p'),
        "preserve",
        None,
        Support::Works,
        "keep permissions, owner, group, times and access control lists",
    ),
    option(Some('S'), "sparse", None, Support::Works, "turn runs of zeros into holes"),
    option(
        Some('i'),
        "input",
        Some("FILE"),
        Support::Works,
        "copy the files named in this file: dwalk's output, or names separated by newlines or NULs",
    ),
    option(Some('L'), "dereference", None, Support::Works, "copy what symlinks point to"),
    option(Some('P'), "no-dereference", None, Support::Works, "copy symlinks as symlinks (the default)"),
    option(
        Some('X'),
        "xattrs",
        Some("OPT"),
        Support::Works,
        "none, all, non-lustre or libattr: extended attributes to keep",
    ),
    option(None, "progress", Some("N"), Support::Works, "show progress every N seconds"),
    option(Some('v'), "verbose", None, Support::Works, "show each name"),
    option(Some('q'), "quiet", None, Support::Works, "show errors only"),
    option(Some('h'), "help", None, Support::Works, "show this help"),
    option(Some('b'), "bufsize", Some("SIZE"), Support::NoEffect, "haul chooses buffer sizes"),
    option(Some('k'), "chunksize", Some("SIZE"), Support::NoEffect, "haul chooses how to divide large files"),
    option(Some('s'), "direct", None, Support::Works, "don't leave copied data in the page cache"),
    option(None, "open-noatime", None, Support::Refused, "don't change access times of the source"),
    option(Some('U'), "uid", Some("UID"), Support::Refused, "work as another user"),
    option(Some('G'), "gid", Some("GID"), Support::Refused, "work as another group"),
    option(None, "daos-api", Some("API"), Support::Refused, "DAOS"),
];

const fn option(
    short: Option<char>,
    long: &'static str,
    value: Option<&'static str>,
    here: Support,
    help: &'static str,
) -> OptionRow {
    OptionRow { short, long, value, here, help }
}

/// The requested copy.
#[derive(Default)]
struct DcpOptions {
    preserve: bool,
    sparse: bool,
    direct: bool,
    follow: bool,
    no_xattrs: bool,
    input: Option<OsString>,
    progress: Option<u64>,
    verbose: bool,
    quiet: bool,
    help: bool,
    paths: Vec<OsString>,
}

/// The exit code after a signal, as `haul-mpi dcp` has it: the same words go on with the copy.
const STOPPED: u8 = 20;

/// Runs what these words, which follow `haul dcp`, ask for, and gives the exit code: 1 after any error, as dcp's.
///
/// Errors: standard output can't be written.
pub async fn run(words: Vec<OsString>, ctx: &Context<'_>) -> Result<u8> {
    let refuse = |line: &str| {
        ctx.screen.log(&format!("haul dcp: {}", one_line(line)));
        Ok(1)
    };
    let given = match parse(words) {
        Ok(given) => given,
        Err(line) => return refuse(&line),
    };
    if given.help {
        print::text(&help())?;
        return Ok(0);
    }
    if let Some(line) = one_of_many(|name| ctx.session.environment().get(name)) {
        return refuse(&line);
    }
    let began = Zoned::now();
    let request = match request(&given) {
        Ok(request) => request,
        Err(line) => return refuse(&line),
    };
    let every = given.progress.filter(|_| !given.quiet);
    let reporting = every.map(|every| Reporting { every, line: progress });
    let ended = match haul_rsync::copy(request, reporting, ctx).await {
        Ok(ended) => ended,
        Err(line) => return refuse(&line),
    };
    if !given.quiet {
        print::line(&summary(&ended.stats, ended.took, &began))?;
    }
    match ended.failed() {
        Some(why) => refuse(&format!("error: {why}")).map(|code| if ended.was_stopped() { STOPPED } else { code }),
        None => Ok(0),
    }
}

/// Variables by which launchers of parallel programs tell each process how many they started, and how to start one. Slurm's is of
/// the step: a batch script, which is one process, has none, however many tasks the job may have.
const LAUNCHERS: [(&str, &str); 5] = [
    ("SLURM_STEP_NUM_TASKS", "srun -n 1 -c CORES"),
    ("OMPI_COMM_WORLD_SIZE", "mpirun -n 1"),
    ("PMI_SIZE", "mpirun -n 1"),
    ("MV2_COMM_WORLD_SIZE", "mpirun -n 1"),
    ("JSM_NAMESPACE_SIZE", "jsrun -n 1"),
];

/// Why this process copies nothing, if it was started as one of several: each would copy everything.
fn one_of_many(env: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    LAUNCHERS.iter().find_map(|(name, one)| {
        let count: u64 = env(name)?.to_str()?.parse().ok().filter(|count| *count > 1)?;
        Some(format!(
            "Refused to copy everything {count} times over: {name}={count} says that {count} processes were started, and each would. \
             One uses all cores of its node: {one} haul dcp ..."
        ))
    })
}

fn parse(words: Vec<OsString>) -> Result<DcpOptions, String> {
    let mut given = DcpOptions::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => {
                given.paths.extend(words);
                break;
            }
            [b'-', b'-', name @ ..] => {
                let at = name.iter().position(|b| *b == b'=');
                let value = at.map(|at| OsString::from_vec(name[at + 1..].to_vec()));
                let name = String::from_utf8_lossy(&name[..at.unwrap_or(name.len())]).into_owned();
                let Some(entry) = OPTIONS.iter().find(|entry| entry.long == name) else {
                    let near = nearest(&name, OPTIONS.iter().map(|entry| entry.long));
                    let near = near.map_or("see haul dcp --help".into(), |near| format!("did you mean --{near}?"));
                    return Err(format!("--{name}: unknown option ({near})"));
                };
                let value = match (entry.value, value) {
                    (Some(_), None) => Some(words.next().ok_or(format!("--{name} needs a value"))?),
                    (None, Some(_)) => return Err(format!("--{name} takes no value")),
                    (_, value) => value,
                };
                given.take(entry, value.unwrap_or_default())?;
            }
            [b'-', letters @ ..] if !letters.is_empty() => {
                let mut rest = letters;
                while let [letter, after @ ..] = rest {
                    let letter = char::from(*letter);
                    let entry = OPTIONS.iter().find(|entry| entry.short == Some(letter));
                    let entry = entry.ok_or_else(|| format!("-{letter}: unknown option (see haul dcp --help)"))?;
                    rest = after;
                    let value = match entry.value {
                        Some(_) if !after.is_empty() => {
                            rest = b"";
                            OsString::from_vec(after.to_vec())
                        }
                        Some(_) => words.next().ok_or(format!("-{letter} needs a value"))?,
                        None => OsString::new(),
                    };
                    given.take(entry, value)?;
                }
            }
            _ => given.paths.push(word),
        }
    }
    Ok(given)
}

impl DcpOptions {
    fn take(&mut self, entry: &OptionRow, value: OsString) -> Result<(), String> {
        let name = entry.long;
        if entry.here == Support::Refused {
            return Err(format!("--{name}: haul dcp doesn't support this option"));
        }
        match name {
            "preserve" => self.preserve = true,
            "sparse" => self.sparse = true,
            "direct" => self.direct = true,
            "input" => self.input = Some(value),
            "dereference" => self.follow = true,
            "no-dereference" => self.follow = false,
            "xattrs" => match value.as_bytes() {
                b"none" => self.no_xattrs = true,
                b"all" | b"non-lustre" | b"libattr" => self.no_xattrs = false,
                _ => return Err(format!("--xattrs={}: not none, all, non-lustre or libattr", value.display())),
            },
            "progress" => {
                let secs = value.to_str().and_then(|text| text.parse().ok());
                let secs: u64 = secs.ok_or_else(|| format!("--progress={}: not a whole number", value.display()))?;
                self.progress = Some(secs).filter(|secs| *secs > 0);
            }
            "bufsize" | "chunksize" if !is_size(&value) => {
                return Err(format!("--{name}={}: not a size, such as 4MB", value.display()));
            }
            "verbose" => self.verbose = true,
            "quiet" => self.quiet = true,
            "help" => self.help = true,
            // The rest changes nothing.
            _ => {}
        }
        Ok(())
    }
}

/// A number of bytes above zero, with a unit or without, as mpiFileUtils reads it: 4194304, 4M, 1.5GB.
fn is_size(text: &OsStr) -> bool {
    let Some(text) = text.to_str() else { return false };
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = unit.to_ascii_lowercase();
    let known =
        unit.is_empty() || matches!(unit.strip_suffix('b').unwrap_or(&unit), "" | "k" | "m" | "g" | "t" | "p" | "e");
    known && !number.starts_with('+') && number.parse::<f64>().is_ok_and(|number| number.is_finite() && number > 0.0)
}

/// The engine's request for dcp: everything is copied, whatever the destination has.
fn request(given: &DcpOptions) -> Result<Request, String> {
    let [sources @ .., dest] = given.paths.as_slice() else {
        return Err("it needs SRC and DEST (see haul dcp --help)".into());
    };
    if sources.is_empty() {
        return Err("it needs SRC and DEST (see haul dcp --help)".into());
    }
    let into = is_dir(dest);
    if sources.len() > 1 && !into {
        return Err(format!("{}: several sources need a directory that is there", dest.display()));
    }
    let mut request = Request {
        program: "haul dcp",
        follow: given.follow,
        preserve: given.preserve,
        xattrs: !given.no_xattrs,
        sparse: given.sparse,
        drop_cache: given.direct,
        quiet: given.quiet,
        out_format: given.verbose.then(|| "%n%L".into()),
        ..Request::default()
    };
    if let Some(input) = &given.input {
        let [source] = sources else { return Err("--input takes one SRC and a DEST".into()) };
        request.names = Some(names(input, &bare(source)?)?);
        let name = source.as_bytes().rsplit(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or_default();
        let nested = OsString::from_vec([dest.as_bytes(), b"/", name].concat());
        let by_name = into && !source.as_bytes().ends_with(b"/");
        request.paths = vec![source.clone(), if by_name { nested } else { dest.clone() }];
        return Ok(request);
    }
    for source in sources {
        let mut path = bare(source)?;
        // As dcp: what is in a directory whose name ends in a slash, and what becomes DEST, goes there without that name.
        let nameless = !into || source.as_bytes().ends_with(b"/");
        if nameless && is_dir(&path) && (given.follow || !is_link(&path)) {
            path.push("/");
        }
        request.paths.push(path);
    }
    if request.paths.len() > 1 {
        check_names(&request.paths, dest, given.follow)?;
    }
    request.paths.push(dest.clone());
    Ok(request)
}

/// Checks that no two sources bring a file to one place in `dest`. Of a source that ends in a slash goes there what is in it.
///
/// Errors: one of two would be left out.
fn check_names(sources: &[OsString], dest: &OsStr, follow: bool) -> Result<(), String> {
    let place = |source: &OsString| {
        let name = source.as_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
        let to = if name.is_empty() { PathBuf::from(dest) } else { Path::new(dest).join(OsStr::from_bytes(name)) };
        (PathBuf::from(source), to)
    };
    sources::check_places(&sources.iter().map(place).collect::<Vec<_>>(), &|path| {
        if rustix::fs::lstat(path).is_err() {
            return SourceKind::Missing;
        }
        match is_dir(path.as_os_str()) && (follow || !is_link(path.as_os_str())) {
            // What can't be read is told by the copy.
            true => SourceKind::Dir(
                std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.file_name()).collect(),
            ),
            false => SourceKind::File,
        }
    })
}

/// A source by its name, whatever slashes and dots are at its end.
fn bare(source: &OsStr) -> Result<OsString, String> {
    let mut path = source.as_bytes();
    while let Some(shorter) = path.strip_suffix(b"/").or(path.strip_suffix(b"/.")).filter(|rest| !rest.is_empty()) {
        path = shorter;
    }
    if !matches!(path.rsplit(|b| *b == b'/').next(), Some(b"." | b"..")) {
        return Ok(OsString::from_vec(path.to_vec()));
    }
    // The parent of a symlink's target is another folder than the one written above the link.
    let whole = std::fs::canonicalize(OsStr::from_bytes(path)).map_err(|e| format!("{}: {e}", source.display()))?;
    Ok(whole.into_os_string())
}

fn is_dir(path: &OsStr) -> bool {
    let st = rustix::fs::stat(path.as_bytes());
    st.is_ok_and(|st| rustix::fs::FileType::from_raw_mode(st.st_mode) == rustix::fs::FileType::Directory)
}

fn is_link(path: &OsStr) -> bool {
    let st = rustix::fs::lstat(path.as_bytes());
    st.is_ok_and(|st| rustix::fs::FileType::from_raw_mode(st.st_mode) == rustix::fs::FileType::Symlink)
}

/// The names in a list, relative to `source`.
fn names(list: &OsStr, source: &OsStr) -> Result<Vec<Vec<u8>>, String> {
    let failed = |why: String| format!("{}: {why}", list.display());
    let file = File::open(list).map_err(|e| failed(e.to_string()))?;
    // dwalk writes where files are, whatever was typed.
    let (whole, real) = (std::path::absolute(source).ok(), std::fs::canonicalize(source).ok());
    let mut folder = vec![source.as_bytes()];
    folder.extend(whole.iter().chain(&real).map(|path| path.as_os_str().as_bytes()));
    let mut names = Vec::new();
    let read = name_list::read(BufReader::new(file), |path| {
        names.extend(name_list::name_in(path, &folder)?);
        Ok(())
    });
    read.map_err(failed)?;
    Ok(names)
}

/// A line of progress in dcp's words.
fn progress(stats: &Stats, took: Duration) -> String {
    let secs = took.as_secs_f64();
    let share = stats.moved * 100 / stats.transferred_bytes.max(1);
    let rate = size_decimal(stats.moved as f64 / secs.max(0.001));
    format!(
        "[{}] Copied {} ({}%) in {secs:.3} secs ({rate}/s)",
        now(),
        size_decimal(stats.moved as f64),
        share.min(100)
    )
}

fn now() -> String {
    Zoned::now().strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

fn summary(stats: &Stats, took: Duration, began: &Zoned) -> String {
    let secs = took.as_secs_f64();
    let items = stats.files.total();
    let bytes = stats.arrived_bytes;
    let day = |at: &Zoned| at.strftime("%b-%d-%Y,%H:%M:%S").to_string();
    let lines = [
        format!("Walked {items} items in {secs:.3} secs ({:.3} items/sec)", items as f64 / secs.max(0.001)),
        format!("Started: {}", day(began)),
        format!("Completed: {}", day(&Zoned::now())),
        format!("Seconds: {secs:.3}"),
        format!("Items: {items}"),
        format!("  Directories: {}", stats.files.dirs),
        format!("  Files: {}", stats.files.files),
        format!("  Links: {}", stats.files.links),
        format!("Data: {} ({bytes} bytes)", size_decimal(bytes as f64)),
        format!("Rate: {}/s ({bytes} bytes in {secs:.3} seconds)", size_decimal(bytes as f64 / secs.max(0.001))),
    ];
    lines.map(|line| format!("[{}] {line}", now())).join("\n")
}

fn help() -> String {
    let mut text = String::from(
        "Copy as dcp of mpiFileUtils does, on this node\n\n\
         Usage: haul dcp [OPTION]... SRC... DEST\n\n\
         SRC is copied into DEST if that is a directory, otherwise as DEST; SRC/ means its contents. Existing files are copied again.\n",
    );
    for (here, title) in TITLES {
        text.push_str(&format!("\n{title}:\n"));
        for OptionRow { short, long, value, help, .. } in OPTIONS.iter().filter(|entry| entry.here == here) {
            let short = short.map_or(String::new(), |short| format!("-{short}, "));
            let value = value.map_or(String::new(), |value| format!(" {value}"));
            text.push_str(&format!("  {:<28}  {help}\n", format!("{short}--{long}{value}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |words: &[&str]| parse(words.iter().map(OsString::from).collect()).map(|_| ());
        assert_eq!(parse(&["-U", "0"]).unwrap_err(), "--uid: haul dcp doesn't support this option");
        assert_eq!(parse(&["--presrve", "a"]).unwrap_err(), "--presrve: unknown option (did you mean --preserve?)");
        assert_eq!(parse(&["--xattrs", "x"]).unwrap_err(), "--xattrs=x: not none, all, non-lustre or libattr");
        assert_eq!(parse(&["-pvS", "--chunksize", "4M", "-b1.5gb", "a", "b"]), Ok(()));
        for size in ["0", "-1", "4X", "", "M", "inf"] {
            assert_eq!(parse(&["-k", size]).unwrap_err(), format!("--chunksize={size}: not a size, such as 4MB"));
        }
    }

    #[test]
    fn only_a_launcher_that_started_several_is_in_the_way() {
        let with = |vars: &'static [(&str, &str)]| {
            one_of_many(move |name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]), None, "a batch script");
        assert_eq!(with(&[("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "1"), ("PMI_SIZE", "1")]), None);
        assert!(with(&[("PMI_SIZE", "2")]).unwrap().ends_with(": mpirun -n 1 haul dcp ..."));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn a_slash_stands_for_what_is_in_a_directory() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name).into_os_string().into_string().unwrap();
        for dir in ["dir", "other", "dst"] {
            std::fs::create_dir(at(dir)).unwrap();
        }
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("dir", at("link")).unwrap();
        let paths = |names: &[&str]| {
            let words = names.iter().map(|name| OsString::from(at(name))).collect();
            let paths = request(&parse(words).unwrap()).unwrap().paths;
            paths.into_iter().map(|path| path.into_string().unwrap().replace(&at(""), "")).collect::<Vec<_>>()
        };
        assert_eq!(paths(&["dir", "dst"]), ["dir", "dst"]);
        assert_eq!(paths(&["dir/.", "dst"]), ["dir", "dst"]);
        assert_eq!(paths(&["dir/", "dst"]), ["dir/", "dst"]);
        assert_eq!(paths(&["dir/", "other", "file", "dst"]), ["dir/", "other", "file", "dst"]);
        assert_eq!(paths(&["dir", "new"]), ["dir/", "new"]);
        assert_eq!(paths(&["link/", "dst"]), ["link", "dst"], "a symlink is copied as what it is");
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn two_files_dont_get_one_name() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name).into_os_string().into_string().unwrap();
        for dir in ["one/d", "two", "dst"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["one/x", "two/x", "x", "y"] {
            std::fs::write(at(file), file).unwrap();
        }
        let parsed = |names: &[&str]| {
            let words = names.iter().map(|name| OsString::from(at(name))).collect();
            request(&parse(words).unwrap()).map(|_| ()).map_err(|why| why.replace(&at(""), ""))
        };
        let refused = |one: &str, other: &str, to: &str| Err(format!("Refused to copy both {one} and {other} to {to}"));
        assert_eq!(parsed(&["one/", "two/", "dst"]), refused("one/x", "two/x", "dst/x"));
        assert_eq!(parsed(&["one/d/", "two/", "dst"]), Ok(()));
        assert_eq!(parsed(&["one/x", "two/x", "dst"]), refused("one/x", "two/x", "dst/x"));
        assert_eq!(parsed(&["one/", "y", "x", "dst"]), refused("one/x", "x", "dst/x"));
        assert_eq!(parsed(&["one/", "two", "y", "dst"]), Ok(()));
        assert_eq!(parsed(&["one", "two", "x", "dst"]), Ok(()));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    fn a_source_keeps_its_name_whatever_its_end() {
        let bare = |path: &str| bare(OsStr::new(path)).map(|path| path.into_string().unwrap());
        let name = |path: &str| bare(path).unwrap();
        assert_eq!(["a", "a/", "a//", "a/.", "x/a/.//"].map(name), ["a", "a", "a", "a", "x/a"]);
        assert!(name(".").starts_with('/') && name("./.").ends_with("haul-dcp"));
        let temp = std::env::temp_dir().join(format!("haul-dcp-{}", std::process::id()));
        std::fs::create_dir(&temp).unwrap();
        let dir = temp.canonicalize().unwrap().into_os_string().into_string().unwrap();
        std::fs::create_dir_all(format!("{dir}/one/two")).unwrap();
        std::os::unix::fs::symlink("one/two", format!("{dir}/link")).unwrap();
        let at = |path: &str| format!("{dir}/{path}");
        assert_eq!(
            ["one/two/..", "one/two/../", "link/.."].map(at).map(|path| name(&path)),
            [(); 3].map(|()| at("one"))
        );
        assert_eq!(["/", "/tmp/..", "/.."].map(name), ["/", "/", "/"]);
        assert_eq!(bare(&at("none/..")), Err(format!("{}: No such file or directory (os error 2)", at("none/.."))));
        std::fs::remove_dir_all(&temp).unwrap();
    }

    #[test]
    fn amounts_have_dcps_decimals() {
        assert_eq!((size_decimal(10.0), size_decimal(1536.0)), ("10.000 B".into(), "1.500 KiB".into()));
    }
}
