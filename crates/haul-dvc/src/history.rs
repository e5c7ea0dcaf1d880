//! A repository's past in git: earlier `.dvc` files and `dvc.lock` files, read by `git` as a child process. Without
//! git, or outside of it, there is no past.

use crate::{
    pipeline::Pipeline,
    repo::{Index, Repo, SelectedPath, count},
};
use haul_cas::{
    address::Address,
    parallel::spread,
    remote::{FEW, History},
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::disk;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    ops::Bound,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread::JoinHandle,
};

/// Earlier states of one file that are looked at.
const STATES: usize = 4;
/// Earlier directories that are asked for at a remote, in all: each is one question.
const ASKED: usize = 16;
/// Commits that are looked through for them.
const COMMITS: &str = "200";

/// The most paths that one question to git names when it is asked which files it tracks.
const FEW_PATHS: usize = 64;

/// Which revisions, beside the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// Tips of all branches.
    pub branches: bool,
    /// All tags.
    pub tags: bool,
    /// All commits.
    pub commits: bool,
}

impl Revisions {
    /// True when there are any.
    pub fn any(self) -> bool {
        self.branches || self.tags || self.commits
    }
}

fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    // A question must not write: no index refresh, no prompt.
    git.arg("-C").arg(root).args(["-c", "core.quotepath=off", "--no-optional-locks"]);
    git.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    git
}

fn output(root: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let failed = |why: String| Error::new(ErrorKind::Io, "git", why);
    let output = git(root).args(args).output().map_err(|e| failed(format!("git can't be run: {e}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("git {}: {}", args[0], stderr.trim().lines().next().unwrap_or("it failed"))))
}

/// git's facts about some paths below a repository's root. Without git, or outside of it, none.
#[derive(Clone, Debug, Default)]
pub struct GitFacts {
    tracked: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl GitFacts {
    /// Asks git, once for all paths.
    ///
    /// Errors: none of git's; those of the thread that asks it.
    pub async fn of(repo: &Repo, paths: &[String]) -> Result<GitFacts> {
        if repo.config.no_scm() || !is_within_git(&repo.root) {
            return Ok(GitFacts::default());
        }
        let root = repo.root.clone();
        let paths: Vec<String> = paths.iter().filter(|path| !path.is_empty()).cloned().collect();
        disk::run(move || Ok(GitFacts { tracked: tracked_of(&root, &paths), ignored: ignored_of(&root, &paths) })).await
    }

    /// True when git tracks this path, or something below it.
    pub(crate) fn tracks(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let first = self.tracked.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded)).next();
        self.tracked.contains(path) || first.is_some_and(|name| name.starts_with(&below))
    }

    /// True when git ignores this path.
    pub(crate) fn ignores(&self, path: &str) -> bool {
        self.ignored.contains(path)
    }
}

/// True when a folder, or one above it, is a git repository's.
pub(crate) fn is_within_git(folder: &Path) -> bool {
    folder.ancestors().any(|folder| folder.join(".git").exists())
}

/// The files at or below these paths that git tracks; of many paths all that it tracks, which costs less than to match each with each
/// file, and needs no long command line. Blocks.
fn tracked_of(root: &Path, paths: &[String]) -> BTreeSet<String> {
    let all = ["--literal-pathspecs", "ls-files", "-z", "--"];
    let few = if paths.len() <= FEW_PATHS { paths } else { &[] };
    let named: Vec<&str> = all.into_iter().chain(few.iter().map(String::as_str)).collect();
    // A path that git can't say anything of must not hide that it tracks another.
    names(&output(root, &named).or_else(|_| output(root, &all)).unwrap_or_default())
}

/// Those of these paths that git ignores. Blocks.
fn ignored_of(root: &Path, paths: &[String]) -> BTreeSet<String> {
    let ask = |paths: &[String]| -> std::io::Result<Output> {
        let mut child = git(root).args(["check-ignore", "-z", "--stdin"]).stdin(Stdio::piped()).spawn()?;
        let asking = feed(&mut child, paths.iter().map(|path| format!("{path}\0")).collect());
        let output = child.wait_with_output();
        // Git may have ended before it read everything.
        let _ = asking.join();
        output
    };
    match ask(paths) {
        // 1: none is ignored.
        Ok(output) if matches!(output.status.code(), Some(0 | 1)) => names(&output.stdout),
        // One that it can't say anything of (in a submodule, behind a link) keeps it from saying anything of those after it.
        Ok(_) if paths.len() > 1 => {
            paths.iter().flat_map(|path| ignored_of(root, std::slice::from_ref(path))).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Writes all of it to a child, which may answer meanwhile.
fn feed(child: &mut Child, text: String) -> JoinHandle<std::io::Result<()>> {
    let stdin = child.stdin.take();
    std::thread::spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes())))
}

fn names(listed: &[u8]) -> BTreeSet<String> {
    String::from_utf8_lossy(listed).split('\0').filter(|name| !name.is_empty()).map(str::to_string).collect()
}

/// A file at some time: its path below the repository's root, and git's name of its content.
type Blob = (String, String);

/// The states of files in a log with `--raw -z`: `:mode mode old new status`, then the path, each ended by a zero byte; the newest
/// first. Without `-z` git quotes names with a quote, a backslash or a control character.
fn raw(log: &[u8], prefix: &str, old_too: bool) -> Vec<Blob> {
    let mut all = Vec::new();
    let log = String::from_utf8_lossy(log);
    let mut words = log.split('\0');
    while let Some(word) = words.next() {
        let Some(facts) = word.trim_start().strip_prefix(':') else { continue };
        let Some(path) = words.next() else { break };
        let Some(path) = path.strip_prefix(prefix) else { continue };
        let facts: Vec<&str> = facts.split(' ').collect();
        let [_, _, old, new, _] = facts[..] else { continue };
        let real = |id: &&str| !id.bytes().all(|b| b == b'0');
        all.extend(
            [Some(new), old_too.then_some(old)].into_iter().flatten().filter(real).map(|id| (path.into(), id.into())),
        );
    }
    all
}

/// Contents of a tree, by `ls-tree -z`: `mode blob ID<TAB>path`, each ended by a zero byte.
fn tree(listing: &[u8], prefix: &str) -> Vec<Blob> {
    let line = |line: &str| {
        let (facts, path) = line.split_once('\t')?;
        Some((path.strip_prefix(prefix)?.to_string(), facts.split(' ').nth(2)?.to_string()))
    };
    String::from_utf8_lossy(listing).split('\0').filter_map(line).collect()
}

fn is_ours(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "dvc.lock" || name == "dvc.yaml" || name.ends_with(".dvc") && name.len() > 4
}

/// The contents of blobs, in order.
///
/// Errors: git isn't there, or lacks one of them.
fn contents(root: &Path, blobs: &[Blob]) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| Error::new(ErrorKind::Io, "git", format!("git cat-file: {e}"));
    let mut child =
        git(root).args(["cat-file", "--batch"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let asking = feed(&mut child, blobs.iter().map(|(_, id)| format!("{id}\n")).collect());
    let stdout = child.stdout.take();
    let mut answers = BufReader::new(stdout.ok_or_else(|| Error::new(ErrorKind::Io, "git", "git has no output"))?);
    let mut all = Vec::with_capacity(blobs.len());
    for _ in blobs {
        let mut head = String::new();
        answers.read_line(&mut head).map_err(failed)?;
        let size = head.trim_end().rsplit(' ').next().and_then(|n| n.parse::<usize>().ok());
        let Some(size) = size else {
            let message = format!(
                "git can't give what a commit holds ({}): is the repository whole (git fsck)?",
                head.trim_end()
            );
            return Err(Error::new(ErrorKind::Corrupt, "git", message));
        };
        let mut bytes = vec![0; size + 1];
        answers.read_exact(&mut bytes).map_err(failed)?;
        bytes.pop();
        all.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    drop(answers);
    // Further output doesn't matter: all answers are here.
    let _ = (asking.join(), child.wait());
    Ok(all)
}

/// Everything that was tracked in these revisions. Blocks.
///
/// Errors: git isn't there or fails.
fn tracked(root: &Path, revisions: Revisions) -> Result<Index> {
    let prefix = output(root, &["rev-parse", "--show-prefix"])?;
    let prefix = String::from_utf8_lossy(&prefix).trim_end().to_string();
    let mut trees: Vec<Vec<Blob>> = Vec::new();
    if revisions.commits {
        let args = [
            "log",
            "--all",
            "--root",
            "-m",
            "--raw",
            "-z",
            "--no-abbrev",
            "--no-renames",
            "--format=",
            "--",
            ":(top)*.dvc",
            ":(top)*dvc.lock",
            ":(top)*dvc.yaml",
        ];
        trees.push(raw(&output(root, &args)?, &prefix, false));
    }
    let kinds = [(revisions.branches, "refs/heads"), (revisions.tags, "refs/tags")];
    for (_, kind) in kinds.into_iter().filter(|(wanted, _)| *wanted) {
        let refs = output(root, &["for-each-ref", "--format=%(refname)", kind])?;
        for name in String::from_utf8_lossy(&refs).lines() {
            trees.push(tree(&output(root, &["ls-tree", "-r", "-z", "--full-tree", name])?, &prefix));
        }
    }
    let mut index = Index::default();
    let mut seen = BTreeSet::new();
    for mut blobs in trees {
        blobs.retain(|(path, _)| is_ours(path));
        let texts = contents(root, &blobs)?;
        let mut pipelines: BTreeMap<&str, Vec<Pipeline>> = BTreeMap::new();
        for ((path, _), text) in blobs.iter().zip(&texts) {
            if let Some(folder) = path.strip_suffix("dvc.yaml")
                && let Ok(pipeline) = Pipeline::parse(text, &|_| None)
            {
                pipelines.entry(folder).or_default().push(pipeline);
            }
        }
        for ((path, id), text) in blobs.iter().zip(&texts) {
            if path.ends_with("dvc.yaml") || !seen.insert((path.clone(), id.clone())) {
                continue;
            }
            let read = match path.strip_suffix("dvc.lock") {
                Some(folder) => {
                    let states: Vec<&Pipeline> = pipelines.get(folder).into_iter().flatten().collect();
                    index.add_old_lock(path, text, &states)
                }
                None => index.add_file(path, text),
            };
            // An old commit can't be fixed.
            if let Err(why) = read {
                tracing::warn!("{path} of an earlier commit is left out: {why}");
            }
        }
    }
    Ok(index)
}

/// Adds what was tracked in these revisions to what is tracked now.
///
/// Errors: git isn't there or fails.
pub async fn with_revisions(repo: &Repo, index: &mut Index, revisions: Revisions) -> Result<()> {
    if !revisions.any() {
        return Ok(());
    }
    let root = repo.root.clone();
    let past = disk::run(move || tracked(&root, revisions)).await?;
    let key = |out: &crate::repo::Tracked| (out.file.clone(), out.path.clone(), out.out.address);
    let mut known: BTreeSet<_> = index.outs.iter().map(key).collect();
    index.outs.extend(past.outs.into_iter().filter(|out| known.insert(key(out))));
    Ok(())
}

/// Lists of files of earlier states of the chosen directories, those that the cache has, the newest first. None where git has nothing
/// to say: then the remote is asked more. None for so few files that each is asked for, either.
pub async fn earlier(repo: &Repo, chosen: &[SelectedPath]) -> Vec<Address> {
    let dirs = || chosen.iter().filter_map(|one| Some((&one.tracked, one.tracked.out.address.filter(|a| a.dir)?)));
    let files: BTreeSet<String> = dirs().map(|(tracked, _)| tracked.file.clone()).collect();
    let current: BTreeSet<Address> = dirs().map(|(_, address)| address).collect();
    if files.is_empty() || count(chosen) <= FEW {
        return Vec::new();
    }
    let repo = repo.clone();
    let found = disk::run(move || past(&repo, &files, &current)).await;
    found.unwrap_or_else(|error| {
        tracing::debug!("no history: {error}");
        Vec::new()
    })
}

/// The content that these lists promise, as far as the cache has them.
pub async fn promised(repo: &Repo, lists: Vec<Address>) -> History {
    let cache = repo.cache.clone();
    let read = move |list: Address| {
        let children = cache.manifest(&list).ok()?;
        Some((list, children.into_iter().map(|child| child.md5).collect()))
    };
    spread(lists, read).await.unwrap_or_default().into_iter().flatten().collect()
}

fn past(repo: &Repo, files: &BTreeSet<String>, current: &BTreeSet<Address>) -> Result<Vec<Address>> {
    let prefix = output(&repo.root, &["rev-parse", "--show-prefix"])?;
    let prefix = String::from_utf8_lossy(&prefix).trim_end().to_string();
    let log = ["log", "-n", COMMITS, "--root", "-m", "--raw", "-z", "--no-abbrev", "--no-renames", "--format=", "--"];
    // A backslash or an asterisk of a name means itself.
    let mut args = vec!["--literal-pathspecs"];
    args.extend(log);
    args.extend(files.iter().map(String::as_str));
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    let mut blobs = raw(&output(&repo.root, &args)?, &prefix, true);
    let mut seen = BTreeSet::new();
    blobs.retain(|blob| seen.insert(blob.clone()));
    blobs.retain(|(path, _)| {
        let count = states.entry(path.clone()).or_default();
        *count += 1;
        *count <= STATES
    });
    let mut lists = Vec::new();
    for ((path, _), text) in blobs.iter().zip(contents(&repo.root, &blobs)?) {
        let mut index = Index::default();
        let read =
            if path.ends_with("dvc.lock") { index.add_old_lock(path, &text, &[]) } else { index.add_file(path, &text) };
        if read.is_err() {
            continue;
        }
        for address in index.outs.iter().filter_map(|out| out.out.address).filter(|a| a.dir && !current.contains(a)) {
            if lists.len() < ASKED
                && !lists.contains(&address)
                && repo.cache.holds(&address).is_ok_and(|held| held.is_some())
            {
                lists.push(address);
            }
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Git's repositories are files of this machine's disk.
    #[allow(clippy::disallowed_methods)]
    #[test]
    fn names_that_git_would_quote_are_found_in_its_past() {
        let dir = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| {
            let own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            let ran = Command::new("git").arg("-C").arg(dir.path()).args(own).args(args).output();
            let ran = ran.expect("git is there");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        };
        run(&["init", "-q"]);
        let names = ["quo\"te.dvc", "back\\slash.dvc", "ta\tb.dvc", "plain.dvc"];
        for state in ["1", "2"] {
            for name in names {
                let md5 = state.repeat(32);
                let text = format!("outs:\n- md5: {md5}\n  size: 1\n  hash: md5\n  path: out-{}\n", name.len());
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            run(&["add", "-A"]);
            run(&["commit", "-qm", state]);
        }
        let found = |revisions: Revisions| -> BTreeSet<String> {
            let index = tracked(dir.path(), revisions).unwrap();
            let files = index.outs.iter().map(|out| out.file.clone());
            let times = names.len() * if revisions.commits { 2 } else { 1 };
            assert_eq!(index.outs.len(), times, "{:?}", index.outs);
            files.collect()
        };
        let all: BTreeSet<String> = names.iter().map(|name| name.to_string()).collect();
        assert_eq!(found(Revisions { commits: true, ..Revisions::default() }), all);
        assert_eq!(found(Revisions { branches: true, ..Revisions::default() }), all);
    }

    #[test]
    fn logs_and_trees_as_git_prints_them() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let zero = "0".repeat(40);
        let log = format!(
            ":100644 100644 {a} {b} M\0sub/data.dvc\0\n:000000 100644 {zero} {a} A\0sub/data.dvc\0:100644 100644 {a} {b} M\0other.dvc\0"
        );
        let blob = |id: &str| ("data.dvc".to_string(), id.to_string());
        assert_eq!(raw(log.as_bytes(), "sub/", true), [blob(&b), blob(&a), blob(&a)]);
        assert_eq!(raw(log.as_bytes(), "sub/", false), [blob(&b), blob(&a)]);
        let listing = format!("100644 blob {a}\tsub/data.dvc\0100644 blob {b}\tREADME\0");
        assert_eq!(tree(listing.as_bytes(), "sub/"), [blob(&a)]);
        assert!(is_ours("x/dvc.lock") && is_ours("a.dvc") && !is_ours("x/.dvc") && !is_ours("a.dvcx"));
    }
}
