//! `--list-only`, and a source without a destination: the source's entries, in rsync's format.

use super::{
    Context,
    exit::{self, Refusal},
    filters::{self, Scope},
    format::{number, permissions, shown},
    opening,
    options::Options,
    path_args::{folder_here, is_here},
};
use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use haul::ListOptions;
use haul_core::{Entry, ErrorKind, Key, Listed, compare::FileType, filter::first_match::RuleError};
use haul_terminal::{Output, one_line};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc};

/// Lists each source; returns the exit code.
///
/// Errors: a source can't be opened, with its exit code.
pub fn list<'a>(options: &'a Options, ctx: &'a Context<'a>) -> LocalBoxFuture<'a, Result<u8, Refusal>> {
    Box::pin(async move {
        let sources = match options.paths.split_last() {
            Some((_, sources)) if !sources.is_empty() => sources,
            _ => &options.paths[..],
        };
        if options.files_from.is_some() {
            let line = "--files-from names what is transferred: it can't be used where sources are only listed";
            return Err((exit::USAGE, line.into()));
        }
        let io = |e: anyhow::Error| (exit::FILE_IO, format!("{e:#}"));
        let mut out = Output::stdout();
        let mut code = 0;
        for source in sources {
            let above = usize::from(!is_contents(source.as_bytes()));
            // A symlink is listed as what it is, and copied only with -l.
            let opening = opening::of_listing(&Options { links: true, ..options.clone() }, above);
            let name = source.as_bytes();
            let link = link_here(options, name).filter(|_| is_here(source));
            let (store, file) = match &link {
                Some((dir, key)) => (ctx.open_as(OsStr::from_bytes(dir), &opening).map_err(io)?, Some(key.clone())),
                None => ctx.open_source_as(source, &opening).await.map_err(io)?,
            };
            let contents = is_contents(name);
            let last = name.rsplit(|b| matches!(b, b'/' | b':')).next().unwrap_or_default();
            let prefix = if contents || last.is_empty() { Vec::new() } else { [last, b"/"].concat() };
            let root = folder_here(source);
            let scope =
                Scope { root: root.clone(), bare_root: !prefix.is_empty(), prefix: prefix.clone(), ..Scope::default() };
            if let Some(key) = file {
                // A path named here is the entry itself.
                let key = if is_here(source) && link.is_none() { Key::new(key.stored()) } else { key };
                let entry = store.stat(&key).await.map_err(|e| (exit::FILE_IO, e.to_string()))?;
                let target = root.as_ref().and_then(|path| target(options, path.strip_suffix(b"/").unwrap_or(path)));
                line(&mut out, options, &entry, key.path(), target).map_err(io)?;
                continue;
            }
            let top = store.stat(&Key::new("")).await;
            match top {
                Err(error) => {
                    ctx.screen.log(&format!("haul rsync: {}", one_line(&error.to_string())));
                    code = exit::PARTIAL;
                    continue;
                }
                Ok(entry) => {
                    let shown = if prefix.is_empty() { b".".to_vec() } else { last.to_vec() };
                    line(&mut out, options, &entry, &shown, None).map_err(io)?;
                }
            }
            if !options.recursive && !prefix.is_empty() {
                continue;
            }
            let seen = Options { links: !options.copy_links, ..options.clone() };
            let filter = Arc::new(filters::filter(&seen, scope)?);
            let depth = (!options.recursive).then_some(1);
            let request = ListOptions {
                dirs: true,
                posix: true,
                mtimes: true,
                max_depth: depth,
                prune_empty_dirs: options.prune_empty_dirs,
                one_device: options.one_file_system > 0,
                omit_mounts: options.one_file_system > 1 && options.recursive,
                ..ListOptions::default()
            };
            let mut listing = haul::list(&store, &filter, request);
            while let Some(step) = listing.next().await {
                match step {
                    Listed::Batch(entries) => {
                        for entry in entries {
                            let bare = entry.key.path();
                            let path = root.as_ref().map(|root| [root, bare].concat()).filter(|_| entry.is_symlink());
                            let target = path.and_then(|path| target(options, &path));
                            line(&mut out, options, &entry, &[&prefix, bare].concat(), target).map_err(io)?;
                        }
                    }
                    // Entries beyond a mount point are left out at the user's request.
                    Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {}
                    Listed::Failed { error, .. } => {
                        ctx.screen.log(&format!("haul rsync: {}", one_line(&error.to_string())));
                        code = exit::PARTIAL;
                    }
                    Listed::Vanished(_) | Listed::End => {}
                }
            }
            for wrong in filter.broken_rules() {
                let (RuleError::Rule(line) | RuleError::File(line)) = wrong;
                ctx.screen.log(&format!("haul rsync: {}", one_line(&line)));
                code = exit::PARTIAL;
            }
        }
        out.flush().map_err(io)?;
        Ok(code)
    })
}

/// The folder and the key of a source here that is a symlink, which isn't followed.
fn link_here<'a>(options: &Options, name: &'a [u8]) -> Option<(&'a [u8], Key)> {
    let symlink = |st: rustix::fs::Stat| rustix::fs::FileType::from_raw_mode(st.st_mode).is_symlink();
    if options.copy_links || !rustix::fs::lstat(name).is_ok_and(symlink) {
        return None;
    }
    let at = name.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let dir = if at == 0 { &b"."[..] } else { &name[..at] };
    Some((dir, Key::symlink(&name[at..])))
}

/// True for a source that means what is in it.
fn is_contents(name: &[u8]) -> bool {
    name.ends_with(b"/") || matches!(name, b"." | b"..") || name.ends_with(b"/.")
}

/// The target of a symlink here, which `-l` shows.
fn target(options: &Options, path: &[u8]) -> Option<Vec<u8>> {
    let target = rustix::fs::readlink(path, Vec::new()).ok().filter(|_| options.links)?;
    Some([b" -> ", &shown(&options.munge.target(target.into_bytes()), options.raw_bytes)[..]].concat())
}

fn line(
    out: &mut Output,
    options: &Options,
    entry: &Entry,
    name: &[u8],
    target: Option<Vec<u8>>,
) -> anyhow::Result<()> {
    let what = FileType::of(entry);
    let kind = match what {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Link => 'l',
        FileType::Device => 'b',
        FileType::Special => 'p',
    };
    // Where there are no permissions, those that a new file would have.
    let usual = match what {
        FileType::Link => 0o777,
        FileType::Dir => 0o755,
        _ => 0o644,
    };
    let mode = entry.posix.as_ref().map_or(usual, |posix| posix.mode);
    let secs = entry.mtime.map_or(0, |mtime| mtime.secs());
    let at = jiff::Timestamp::new(secs, 0)?.to_zoned(jiff::tz::TimeZone::system());
    let size = number(entry.size, options.human);
    let width = if options.human == u8::MAX { 11 } else { 14 };
    let text = format!("{kind}{} {size:>width$} {} ", permissions(mode), at.strftime("%Y/%m/%d %H:%M:%S"));
    let name = [shown(name, options.raw_bytes), target.unwrap_or_default()].concat();
    out.line(&text, &name)
}
