//! `dedupe`: files that have one name, where a store allows that (Google Drive), and files of one content.

use super::{
    deleting::{allowed, check_still, refuse_backups},
    hash_sums::hashes,
    listing::{Failures, Source, depth},
};
use crate::{
    context::Context,
    error::{CommandResult, one_line, usage},
    print,
};
use anyhow::Result;
use clap::ValueEnum;
use futures::{StreamExt as _, stream};
use haul::ListOptions;
use haul_core::{Algo, Entry, Error, ErrorKind, Key, key, units::size_text};
use haul_store::{Caps, ChangedMeaning, Doubles, Links};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ffi::OsString,
    io::{IsTerminal as _, stdin},
};

/// Find files with the same name or content, and keep one of each
///
/// On Google Drive, several files in a directory can have the same name. First, merges directories with the same name. Then, among
/// files with the same name, deletes all but one of those with the same hash; MODE says what to do with the others. With --by-hash,
/// finds files with the same content under any names, on any store that has hashes or whose host computes them; on disks it reads
/// files of the same size. Empty files don't count, nor do further hard links to a file. --dry-run shows what would be done.
///
/// Example: haul dedupe --dry-run rename drive:photos
///
/// Example: haul dedupe newest drive:photos
///
/// Example: haul dedupe --by-hash list minio:backup
#[derive(clap::Args, Debug)]
pub struct Args {
    /// An optional MODE, then the directory
    #[arg(value_name = "MODE|REMOTE:PATH", num_args = 1..=2, required = true)]
    paths: Vec<OsString>,
    /// What to do with duplicates
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Interactive)]
    dedupe_mode: Mode,
    /// Find files with the same content, whatever their names
    #[arg(long)]
    by_hash: bool,
}

/// What becomes of duplicates that aren't identical (with `--by-hash`: of all).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Ask about each
    Interactive,
    /// Leave them
    Skip,
    /// Keep the first that is listed
    First,
    /// Keep the one that was modified last
    Newest,
    /// Keep the one that was modified first
    Oldest,
    /// Keep the largest
    Largest,
    /// Keep the smallest
    Smallest,
    /// Number their names: a-1.txt, a-2.txt
    Rename,
    /// Only show all duplicates
    List,
}

/// True for a hash that two files of one size don't share by accident.
fn proves(algo: Algo) -> bool {
    !matches!(algo, Algo::Crc32 | Algo::Crc32c | Algo::Crc64Nvme | Algo::Xxh3 | Algo::QuickXor | Algo::Md5Text)
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    refuse_backups(ctx, "dedupe")?;
    let (mode, path) = match &args.paths[..] {
        [path] => (args.dedupe_mode, path),
        [mode, path, ..] => {
            let named = mode.to_str().and_then(|mode| Mode::from_str(mode, true).ok());
            let modes = Mode::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let modes: Vec<String> = modes.map(|mode| mode.get_name().to_owned()).collect();
            let wrong = || format!("{} is no mode: use one of {}", mode.display(), modes.join(", "));
            (named.ok_or_else(|| usage(wrong()))?, path)
        }
        [] => return Err(usage("no path")),
    };
    if mode == Mode::Interactive && !stdin().is_terminal() && !ctx.flags.config.dry_run {
        return Err(usage("to ask about each file there must be a terminal: name a mode, such as list or newest"));
    }
    if args.by_hash && mode == Mode::Rename {
        return Err(usage("--by-hash finds files that have names of their own: rename has nothing to do"));
    }
    // A file that is reached by a symlink too would count as two, and the only one would go.
    let mut options = ctx.open_options();
    if args.by_hash && !ctx.flags.meta.copy_links {
        options.links = Links::Keep;
    }
    let source = Source::open_as(ctx, path, &options).await?;
    let caps = source.store.caps();
    if args.by_hash && ctx.flags.meta.copy_links && caps.set_dir_mtime && !tells_inodes(caps) {
        return Err(usage("--copy-links: two names of one file can't be told from two files there: leave it out"));
    }
    if source.file.is_some() {
        return Err(usage("dedupe looks through a directory, and this is a file"));
    }
    let mut work = Deduplication { ctx, source: &source, mode, failures: Failures::default() };
    if args.by_hash {
        work.by_hash().await?;
    } else {
        let unique = "each name is of one file there: only --by-hash can find duplicates";
        let doubles = source.store.doubles().ok_or_else(|| Error::new(ErrorKind::Unsupported, "dedupe", unique))?;
        work.by_name(doubles).await?;
    }
    work.failures.finish()?;
    Ok(CommandResult::Done)
}

struct Deduplication<'a> {
    ctx: &'a Context,
    source: &'a Source,
    mode: Mode,
    failures: Failures,
}

/// Action for a group.
enum Choice {
    /// Nothing.
    Skip,
    /// All but this one are deleted.
    Keep(usize),
    /// Each gets a name of its own.
    Rename,
    /// Nothing more is done at all.
    Quit,
}

impl Deduplication<'_> {
    /// All directories, one after another: those of one name are merged before they are looked into.
    async fn by_name(&mut self, doubles: &dyn Doubles) -> Result<()> {
        let mut left = VecDeque::from([(Key::new(""), 1)]);
        let max_depth = depth(&self.ctx.flags, true);
        while let Some((dir, level)) = left.pop_front() {
            let Some(mut entries) = self.failures.keep(doubles.all_in(&dir).await) else { continue };
            let filter = &self.source.filter;
            entries.retain(|e| if e.is_dir() { filter.descend(e.key.as_bytes()) } else { filter.wants(e) });
            let mut names: Vec<Key> = entries.iter().map(|entry| entry.key.clone()).collect();
            for group in entries.chunk_by(|a, b| a.key == b.key) {
                let is_one = match (&group[0], group.len()) {
                    (first, 1) => first.is_dir(),
                    (first, _) if first.is_dir() => self.merge(doubles, group).await?,
                    _ => {
                        if !self.files(doubles, group, &mut names).await? {
                            return Ok(());
                        }
                        false
                    }
                };
                if is_one && max_depth.is_none_or(|max| level < max) {
                    left.push_back((group[0].key.clone(), level + 1));
                }
            }
        }
        Ok(())
    }

    /// Merges directories; false where they are several still, so that nobody can look into them by their name.
    async fn merge(&mut self, doubles: &dyn Doubles, dirs: &[Entry]) -> Result<bool> {
        let (key, count) = (&dirs[0].key, dirs.len());
        if self.mode == Mode::List {
            print::line(&format!("{key}: {count} directories of this name; what is in them isn't looked at"))?;
            return Ok(false);
        }
        if !allowed(self.ctx, &format!("merge {count} directories"), key, None) {
            return Ok(false);
        }
        let merged = self.failures.keep(doubles.merge_dirs(dirs.to_vec()).await).is_some();
        if merged {
            tracing::warn!("{key}: merged {count} directories");
        }
        Ok(merged)
    }

    /// Files of one name. False when the user wants to end.
    async fn files(&mut self, doubles: &dyn Doubles, files: &[Entry], names: &mut Vec<Key>) -> Result<bool> {
        let key = &files[0].key;
        if self.mode == Mode::List {
            self.show(key, files)?;
            return Ok(true);
        }
        let mut left: Vec<Entry> = Vec::new();
        // The newest of all, say, is the choice among identical ones too.
        let best = best(self.mode, files);
        let order = best.into_iter().chain((0..files.len()).filter(|at| Some(*at) != best));
        for file in order.map(|at| &files[at]) {
            let Some(known) = left.iter().find(|other| self.identical(other, file)) else {
                left.push(file.clone());
                continue;
            };
            if allowed(self.ctx, "delete identical file", key, size(file)) && !self.delete(doubles, file, known).await {
                return Ok(true);
            }
        }
        if left.len() < 2 {
            return Ok(true);
        }
        match self.choose(key, &left)? {
            Choice::Quit => return Ok(false),
            Choice::Skip => tracing::warn!("{key}: {} files of this name are left", left.len()),
            Choice::Keep(kept) => {
                for (at, file) in left.iter().enumerate() {
                    if at != kept
                        && allowed(self.ctx, "delete", key, size(file))
                        && !self.delete(doubles, file, &left[kept]).await
                    {
                        break;
                    }
                }
            }
            Choice::Rename => {
                for file in &left {
                    let name = free_name(key, names);
                    names.push(name.clone());
                    if allowed(self.ctx, &format!("rename to {}", name.display()), key, None)
                        && self.failures.keep(doubles.rename_one(file, &name).await).is_some()
                    {
                        tracing::warn!("{name}: renamed from {key}");
                    }
                }
            }
        }
        Ok(true)
    }

    /// Deletes one of several files, for the sake of which `kept` stays. False where that isn't what it was, so that none of the others
    /// may go.
    async fn delete(&mut self, doubles: &dyn Doubles, file: &Entry, kept: &Entry) -> bool {
        let still = doubles.check_one(kept).await.map_err(|error| {
            let why = format!("the file to keep: {}: nothing of this name is deleted", error.message());
            Error::new(error.kind(), "dedupe", why).with_key(&kept.key)
        });
        if self.failures.keep(still).is_none() {
            return false;
        }
        let deleted = doubles.delete_one(file).await.map_err(|error| error.with_key(&file.key));
        if self.failures.keep(deleted).is_some() {
            tracing::warn!("{}: deleted ({})", file.key, description(file));
        }
        true
    }

    /// Proved to be of one content: by a hash that both have, or by the size where the user says that this is enough.
    fn identical(&self, one: &Entry, other: &Entry) -> bool {
        let sized = one.sized && other.sized && one.size == other.size;
        let same = || matches!(one.hashes.agree(&other.hashes), Some((_, true)));
        sized && (self.ctx.flags.copy.size_only || same())
    }

    fn show(&self, title: &Key, files: &[Entry]) -> Result<()> {
        print::line(&format!("{title}: {} files", files.len()))?;
        for (at, file) in files.iter().enumerate() {
            print::line(&format!("{:>4}: {}", at + 1, description(file)))?;
        }
        Ok(())
    }

    /// Action for files that aren't identical.
    fn choose(&self, key: &Key, files: &[Entry]) -> Result<Choice> {
        Ok(match self.mode {
            Mode::Skip | Mode::List => Choice::Skip,
            Mode::Rename => Choice::Rename,
            Mode::Interactive if self.ctx.flags.config.dry_run => Choice::Skip,
            Mode::Interactive => self.ask(key, files)?,
            Mode::First | Mode::Newest | Mode::Oldest | Mode::Largest | Mode::Smallest => {
                match best(self.mode, files) {
                    Some(kept) => Choice::Keep(kept),
                    None => {
                        tracing::warn!("{key}: none of them stands out: nothing is deleted");
                        Choice::Skip
                    }
                }
            }
        })
    }

    fn ask(&self, key: &Key, files: &[Entry]) -> Result<Choice> {
        self.show(key, files)?;
        loop {
            eprint!("haul: s skips, 1 to {} keeps only that one, r renames all, q quits> ", files.len());
            let mut answer = String::new();
            if stdin().read_line(&mut answer)? == 0 {
                return Ok(Choice::Quit);
            }
            match answer.trim() {
                "s" | "" => return Ok(Choice::Skip),
                "r" => return Ok(Choice::Rename),
                "q" => return Ok(Choice::Quit),
                number => match number.parse::<usize>() {
                    Ok(number) if (1..=files.len()).contains(&number) => return Ok(Choice::Keep(number - 1)),
                    _ => eprintln!("haul: \"{}\" is none of these", one_line(number)),
                },
            }
        }
    }

    /// Files of one content.
    async fn by_hash(&mut self) -> Result<()> {
        // Where each costs a request, times are asked for only if the mode goes by them.
        let mtimes = matches!(self.mode, Mode::Newest | Mode::Oldest);
        let options = ListOptions { max_depth: depth(&self.ctx.flags, true), mtimes, ..ListOptions::default() };
        let (mut entries, mut files) = (self.source.entries(options), Vec::new());
        while let Some(entry) = entries.next().await {
            let Some(entry) = self.failures.keep(entry) else { continue };
            if entry.has_bytes() && !entry.is_symlink() && entry.sized && entry.size > 0 {
                files.push(entry);
            }
        }
        drop(entries);
        let caps = self.source.store.caps();
        let only_shows = matches!(self.mode, Mode::List | Mode::Skip);
        let kept = || caps.hashes_listed.iter().chain(&caps.hashes_stored);
        if !only_shows && kept().next().is_some() && !kept().any(|algo| proves(*algo)) {
            let names = kept().map(Algo::to_string).collect::<Vec<_>>().join(", ");
            let why =
                format!("two files may have one {names} by chance, so nothing is deleted by it: see which with list");
            return Err(Error::new(ErrorKind::Unsupported, "dedupe", why).into());
        }
        let hashes = match kept().find(|algo| only_shows || proves(**algo)) {
            Some(algo) => {
                let hash = |entry: Entry| (entry.hashes.get(*algo).map(<[u8]>::to_vec), entry);
                files.into_iter().map(hash).collect()
            }
            None => self.hashed(files).await?,
        };
        let (mut groups, mut unknown) = (BTreeMap::<_, Vec<Entry>>::new(), 0u64);
        for (hash, entry) in hashes {
            match hash {
                Some(hash) => groups.entry((entry.size, hash)).or_default().push(entry),
                None => unknown += 1,
            }
        }
        if unknown > 0 {
            tracing::warn!("the store has no hash of {unknown} files: they aren't compared");
        }
        for files in groups.into_values().filter(|files| files.len() > 1) {
            let title = &files[0].key;
            if self.mode == Mode::List {
                self.show(title, &files)?;
                continue;
            }
            match self.choose(title, &files)? {
                Choice::Quit => return Ok(()),
                Choice::Rename => tracing::warn!("{title}: these have names of their own"),
                Choice::Skip => tracing::warn!("{title}: {} files of this content are left", files.len()),
                Choice::Keep(kept) => self.keep(&files, kept).await,
            }
        }
        Ok(())
    }

    /// Hashes files that others have the size of. Of a file with several names only the first counts: deleting another frees nothing.
    async fn hashed(&mut self, mut files: Vec<Entry>) -> Result<Vec<(Option<Vec<u8>>, Entry)>> {
        let store = &self.source.store;
        let there = haul::hash::computed_there(store).await?;
        let read = store.caps().cheap_reads.then_some(Algo::Blake3);
        let none =
            || Error::new(ErrorKind::Unsupported, "dedupe", "the store has no hashes, so --by-hash can't compare");
        let algo = read.or(there.iter().copied().find(|algo| proves(*algo))).ok_or_else(none)?;
        let mut named = HashSet::new();
        let inodes = tells_inodes(store.caps());
        files.retain(|file| file.version.clone().is_none_or(|version| !inodes || named.insert(version)));
        let mut sizes: HashMap<u64, usize> = HashMap::new();
        files.iter().for_each(|file| *sizes.entry(file.size).or_default() += 1);
        files.retain(|file| sizes[&file.size] > 1);
        let files = stream::iter(files.into_iter().map(Ok)).boxed();
        let mut sums = hashes(self.source, files, algo, false, self.ctx.known().hashes);
        let mut hashed = Vec::new();
        while let Some(sum) = sums.next().await {
            hashed.extend(self.failures.keep(sum).map(|(file, hash)| (hash, file)));
        }
        Ok(hashed)
    }

    /// Deletes all but one of the files of one content, as they were listed; nothing more once the one isn't what it was.
    async fn keep(&mut self, files: &[Entry], kept: usize) {
        let store = self.source.store.clone();
        for (_, file) in files.iter().enumerate().filter(|(at, _)| *at != kept) {
            if !allowed(self.ctx, "delete duplicate", &file.key, size(file)) {
                continue;
            }
            // The prompt may have been open for long.
            if !store.caps().deletes_version && self.failures.keep(check_still("dedupe", &store, file).await).is_none()
            {
                continue;
            }
            // What goes may be the last other copy of what the kept one held.
            if self.failures.keep(check_still("dedupe", &store, &files[kept]).await).is_none() {
                return;
            }
            let answers = store.delete(vec![(file.key.clone(), file.version.clone())]).await;
            for answer in answers {
                if self.failures.keep(answer.map_err(|error| error.with_key(&file.key))).is_some() {
                    tracing::warn!("{}: deleted, as it is {} again", file.key, files[kept].key);
                }
            }
        }
    }
}

/// A version there is an inode's, so that two names of one file have one.
fn tells_inodes(caps: &Caps) -> bool {
    caps.files || caps.changed == ChangedMeaning::Inode
}

/// The file that a mode keeps; `None` where the mode keeps none by itself, or none stands out.
fn best(mode: Mode, files: &[Entry]) -> Option<usize> {
    let by = |fact: &dyn Fn(&Entry) -> Option<i128>| {
        let facts: Option<Vec<i128>> = files.iter().map(fact).collect();
        let facts = facts?;
        let most = facts.iter().max()?;
        let mut places = facts.iter().enumerate().filter(|(_, fact)| *fact == most);
        let (place, _) = places.next()?;
        places.next().is_none().then_some(place)
    };
    let sized = |file: &Entry| file.sized.then_some(i128::from(file.size));
    match mode {
        Mode::First => Some(0),
        Mode::Newest => by(&|file| file.mtime.map(|time| time.0)),
        Mode::Oldest => by(&|file| file.mtime.map(|time| -time.0)),
        Mode::Largest => by(&sized),
        Mode::Smallest => by(&|file| sized(file).map(|size| -size)),
        Mode::Interactive | Mode::Skip | Mode::Rename | Mode::List => None,
    }
}

/// A numbered name that nothing in the directory has: the number stands before the ending.
fn free_name(key: &Key, taken: &[Key]) -> Key {
    let path = key.as_bytes();
    let begin = path.len() - key::name(path).len();
    let dot = path[begin..].iter().rposition(|b| *b == b'.').filter(|at| *at > 0).map_or(path.len(), |at| begin + at);
    let names = (1u64..).map(|n| Key::new([&path[..dot], format!("-{n}").as_bytes(), &path[dot..]].concat()));
    let mut free = names.filter(|name| !taken.contains(name));
    free.next().unwrap_or_else(|| key.clone())
}

fn size(file: &Entry) -> Option<u64> {
    file.sized.then_some(file.size)
}

/// Size, time and hash of a file, as a person tells it from another.
fn description(file: &Entry) -> String {
    let size = size(file).map_or("a document".into(), size_text);
    let time = file.mtime.or(file.changed).and_then(|time| jiff::Timestamp::from_nanosecond(time.0).ok());
    let time = time.map_or("no time".into(), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    let hash = file.hashes.iter().next().map(|(algo, hash)| format!(", {algo} {}", haul_core::hash::to_hex(hash)));
    format!("{size}, {time}{}, {}", hash.unwrap_or_default(), file.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Mtime;

    #[test]
    fn a_mode_keeps_one_only_if_it_stands_out() {
        let file = |size, time| Entry { mtime: Some(Mtime(time)), ..Entry::file(Key::new("a"), size) };
        let files = [file(1, 5), file(3, 9), file(3, 7)];
        let kept = [Mode::First, Mode::Newest, Mode::Oldest, Mode::Largest, Mode::Smallest].map(|m| best(m, &files));
        assert_eq!(kept, [Some(0), Some(1), Some(0), None, Some(0)]);
        let unknown = [file(1, 5), Entry::file(Key::new("a"), 2)];
        assert_eq!((best(Mode::Newest, &unknown), best(Mode::Largest, &unknown)), (None, Some(1)));
    }

    #[test]
    fn names_are_numbered_before_their_ending() {
        let taken = [Key::new("d/a-1.txt")];
        for (name, free) in
            [("d/a.txt", "d/a-2.txt"), ("d.x/a", "d.x/a-1"), (".rc", ".rc-1"), ("a.tar.gz", "a.tar-1.gz")]
        {
            assert_eq!(free_name(&Key::new(name), &taken), Key::new(free));
        }
    }
}
