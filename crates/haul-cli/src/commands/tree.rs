//! `tree`: a path as a tree. The one listing that holds all it shows in memory, since a branch must know whether more
//! follow and sorts by name.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    show::{
        go_time,
        out::{Output, quiet},
        time_of,
    },
};
use anyhow::{Context as _, Result};
use futures::StreamExt;
use haul::ListOptions;
use haul_core::{Entry, Mtime, key};
use jiff::{Zoned, tz::TimeZone};
use std::{cmp::Ordering, collections::HashMap, ffi::OsString, path::PathBuf};

/// Show a path as a tree
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Include names that start with a dot
    #[arg(long, short = 'a')]
    all: bool,
    /// List directories only
    #[arg(long, short = 'd')]
    dirs_only: bool,
    /// List directories before files
    #[arg(long)]
    dirsfirst: bool,
    /// Print the full path of each entry
    #[arg(long)]
    full_path: bool,
    /// Recurse at most this many levels
    #[arg(long, value_name = "N", default_value_t = 0)]
    level: usize,
    /// Show modification times
    #[arg(long, short = 'D')]
    modtime: bool,
    /// Don't draw lines
    #[arg(long)]
    noindent: bool,
    /// Omit the counts at the end
    #[arg(long)]
    noreport: bool,
    /// Write to this file
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show permissions
    #[arg(long, short = 'p')]
    protections: bool,
    /// Put names in quotes
    #[arg(long, short = 'Q')]
    quote: bool,
    /// Show sizes
    #[arg(long, short = 's')]
    size: bool,
    /// Sort by name, version, size, mtime or ctime
    #[arg(long, value_name = "BY")]
    sort: Option<String>,
    /// Sort by time of change
    #[arg(long)]
    sort_ctime: bool,
    /// Sort by modification time
    #[arg(long, short = 't')]
    sort_modtime: bool,
    /// Reverse the order
    #[arg(long, short = 'r')]
    sort_reverse: bool,
    /// Keep the order of the store's listing
    #[arg(long, short = 'U')]
    unsorted: bool,
    /// Sort names that contain numbers by those numbers
    #[arg(long)]
    version: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(show(args, ctx).await)
}

async fn show(args: Args, ctx: &Context) -> Result<CommandResult> {
    let order = order(&args)?;
    let source = Source::open(ctx, &args.path).await?;
    let options = ListOptions {
        max_depth: if args.level > 0 { Some(args.level) } else { depth(&ctx.flags, true) },
        dirs: true,
        mtimes: args.modtime || matches!(order, SortOrder::Time),
        ..Default::default()
    };
    let (mut tree, mut failures) = (Tree::new(), Failures::default());
    let none = ctx.flags.config.default_time();
    let mut entries = source.entries(options);
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        if args.all || !hidden(entry.key.as_bytes()) {
            tree.add(&entry, none);
        }
    }
    if tree.nodes.len() == 1 {
        // Nothing could be read: an empty tree would say that nothing is there.
        std::mem::take(&mut failures).finish()?;
    }
    tree.sort(order, args.sort_reverse);
    let drawing = Drawing { args: &args, tree: &tree, human: ctx.flags.config.human_readable, now: Zoned::now() };
    let text = drawing.draw();
    match &args.output {
        #[expect(clippy::disallowed_methods, reason = "a file that the user named for output")]
        Some(path) => std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))?,
        None => {
            let mut out = Output::stdout();
            out.bytes(&text)?;
            out.flush()?;
        }
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// Does any part of the name start with a dot?
fn hidden(key: &[u8]) -> bool {
    key.split(|b| *b == b'/').any(|part| part.starts_with(b"."))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SortOrder {
    Unsorted,
    Time,
    Changed,
    DirsFirst,
    Version,
    Size,
    Name,
}

/// The first of these that was asked for counts, as in rclone.
fn order(args: &Args) -> Result<SortOrder> {
    let by = args.sort.as_deref();
    if !matches!(by, None | Some("name" | "version" | "size" | "mtime" | "ctime")) {
        return Err(usage(format!("--sort {}: use name, version, size, mtime or ctime", by.unwrap_or_default())));
    }
    Ok(if args.unsorted {
        SortOrder::Unsorted
    } else if args.sort_modtime || by == Some("mtime") {
        SortOrder::Time
    } else if args.sort_ctime || by == Some("ctime") {
        SortOrder::Changed
    } else if args.dirsfirst {
        SortOrder::DirsFirst
    } else if args.version || by == Some("version") {
        SortOrder::Version
    } else if by == Some("size") {
        SortOrder::Size
    } else {
        SortOrder::Name
    })
}

struct Node {
    name: Box<[u8]>,
    dir: bool,
    size: u64,
    mtime: Mtime,
    changed: Mtime,
    below: Vec<usize>,
}

/// All entries; node 0 is the root.
struct Tree {
    nodes: Vec<Node>,
    dirs: HashMap<Box<[u8]>, usize>,
}

impl Tree {
    fn new() -> Self {
        let root =
            Node { name: Box::default(), dir: true, size: 0, mtime: Mtime(0), changed: Mtime(0), below: Vec::new() };
        Tree { nodes: vec![root], dirs: HashMap::from([(Box::default(), 0)]) }
    }

    fn add(&mut self, entry: &Entry, none: Mtime) {
        let key = entry.key.stored();
        // Its directory was listed before it; a file without one stands at the top.
        let parent = self.dirs.get(key::parent(key)).copied().unwrap_or(0);
        let at = self.nodes.len();
        if entry.is_dir() {
            self.dirs.insert(key.into(), at);
        }
        self.nodes.push(Node {
            name: key::name(key).into(),
            dir: entry.is_dir(),
            size: entry.size,
            mtime: time_of(entry, false, none),
            changed: time_of(entry, true, none),
            below: Vec::new(),
        });
        self.nodes[parent].below.push(at);
    }

    fn sort(&mut self, order: SortOrder, reverse: bool) {
        if order == SortOrder::Unsorted {
            return;
        }
        for at in 0..self.nodes.len() {
            let mut below = std::mem::take(&mut self.nodes[at].below);
            below.sort_by(|a, b| {
                let (a, b) = (&self.nodes[*a], &self.nodes[*b]);
                let first = match order {
                    SortOrder::Unsorted | SortOrder::Name => Ordering::Equal,
                    SortOrder::Time => a.mtime.cmp(&b.mtime),
                    SortOrder::Changed => a.changed.cmp(&b.changed),
                    SortOrder::DirsFirst => b.dir.cmp(&a.dir),
                    SortOrder::Size => a.size.cmp(&b.size),
                    SortOrder::Version => by_version(&a.name, &b.name),
                };
                first.then_with(|| a.name.cmp(&b.name))
            });
            if reverse {
                below.reverse();
            }
            self.nodes[at].below = below;
        }
    }

    /// Bytes of all files below a directory.
    fn total(&self, at: usize) -> u64 {
        let sizes =
            self.nodes[at].below.iter().map(|i| if self.nodes[*i].dir { self.total(*i) } else { self.nodes[*i].size });
        sizes.sum()
    }
}

/// Names with runs of digits compared as numbers; digits before other bytes; of equal numbers the one with fewer zeros first.
fn by_version(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        match (x.is_ascii_digit(), y.is_ascii_digit()) {
            (true, true) => {
                let (p, q) = (digits(a), digits(b));
                let (n, m) = (without_zeros(p), without_zeros(q));
                let order = n.len().cmp(&m.len()).then_with(|| n.cmp(m)).then_with(|| p.len().cmp(&q.len()));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (&a[p.len()..], &b[q.len()..]);
            }
            (false, false) if x == y => (a, b) = (&a[1..], &b[1..]),
            (false, false) => return x.cmp(y),
            (digit, _) => return if digit { Ordering::Less } else { Ordering::Greater },
        }
    }
    a.len().cmp(&b.len())
}

fn digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|b| b.is_ascii_digit()).count()]
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|b| **b == b'0').count()..]
}

/// Makes the text.
struct Drawing<'a> {
    args: &'a Args,
    tree: &'a Tree,
    human: bool,
    now: Zoned,
}

impl Drawing<'_> {
    fn draw(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.node(0, b"", "", &mut out);
        if !self.args.noreport {
            let dirs = self.tree.nodes.iter().skip(1).filter(|n| n.dir).count();
            let files = self.tree.nodes.iter().filter(|n| !n.dir).count();
            out.extend_from_slice(format!("\n{dirs} directories").as_bytes());
            if !self.args.dirs_only {
                out.extend_from_slice(format!(", {files} files").as_bytes());
            }
            out.push(b'\n');
        }
        out
    }

    fn node(&self, at: usize, above: &[u8], indent: &str, out: &mut Vec<u8>) {
        let node = &self.tree.nodes[at];
        let path: Vec<u8> = if at == 0 { b"/".to_vec() } else { [above, &node.name].concat() };
        let properties = self.properties(at);
        if !properties.is_empty() {
            out.extend_from_slice(format!("[{}]  ", properties.join(" ")).as_bytes());
        }
        let name = if at == 0 || self.args.full_path { &path } else { &*node.name };
        let quote: &[u8] = if self.args.quote { b"\"" } else { b"" };
        out.extend_from_slice(&[quote, name, quote, b"\n"].concat());
        let shown: Vec<usize> =
            node.below.iter().copied().filter(|i| self.tree.nodes[*i].dir || !self.args.dirs_only).collect();
        let below = if at == 0 { b"/".to_vec() } else { [&path[..], b"/"].concat() };
        for (i, child) in shown.iter().enumerate() {
            let last = i + 1 == shown.len();
            let (branch, more) = match (self.args.noindent, last) {
                (true, _) => ("", ""),
                (_, true) => ("└── ", "    "),
                (_, false) => ("├── ", "│   "),
            };
            if !self.args.noindent {
                out.extend_from_slice(indent.as_bytes());
            }
            out.extend_from_slice(branch.as_bytes());
            self.node(*child, &below, &format!("{indent}{more}"), out);
        }
    }

    fn properties(&self, at: usize) -> Vec<String> {
        let node = &self.tree.nodes[at];
        let mut properties = Vec::new();
        if self.args.protections && !node.dir {
            // Stores don't list permissions; this is what rclone shows for every file.
            properties.push("-rw-rw-rw-".into());
        }
        if self.args.size || self.human {
            let size = if node.dir { self.tree.total(at) } else { node.size };
            properties.push(if self.human { format!("{:>4}", short_size(size)) } else { format!("{size:>11}") });
        }
        if self.args.modtime && !node.dir {
            properties.push(self.time(node.mtime));
        }
        properties
    }

    fn time(&self, time: Mtime) -> String {
        let zone: &TimeZone = self.now.time_zone();
        let year = go_time::format(time, "2006", zone);
        let layout = if year == self.now.year().to_string() { "Jan 02 15:04" } else { "Jan 02  2006" };
        go_time::format(time, layout, zone)
    }
}

/// Sizes in at most four columns, as tree shows them: `12`, `1.5K`, `120M`.
fn short_size(bytes: u64) -> String {
    const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    // A whole unit is still shown in the unit below: `1024`, `1.0K` from 1025 on.
    let step = ((u64::BITS - bytes.saturating_sub(1).leading_zeros()).saturating_sub(1) / 10) as usize;
    let value = bytes as f64 / 1024f64.powi(step as i32);
    match step {
        0 => bytes.to_string(),
        _ if value < 10.0 => format!("{value:.1}{}", LETTERS[step]),
        _ => format!("{value:.0}{}", LETTERS[step]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_number() {
        let mut names = ["a10", "a2", "a02", "b", "a", "1", "a2b"].map(str::as_bytes);
        names.sort_by(|a, b| by_version(a, b));
        assert_eq!(names, ["1", "a", "a2", "a2b", "a02", "a10", "b"].map(str::as_bytes));
    }

    #[test]
    fn short_sizes() {
        for (bytes, text) in
            [(0, "0"), (1024, "1024"), (1025, "1.0K"), (1536, "1.5K"), (10240, "10K"), (1 << 21, "2.0M")]
        {
            assert_eq!(short_size(bytes), text);
        }
    }

    #[test]
    fn a_dot_anywhere_hides() {
        assert!(hidden(b".a") && hidden(b"a/.b/c") && !hidden(b"a.b/c"));
    }
}
