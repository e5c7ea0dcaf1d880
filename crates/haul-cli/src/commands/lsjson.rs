//! `lsjson`: entries as a JSON array, one a line.

use super::{
    item::{Facts, ListedEntry},
    listing::{Failures, Source, depth},
};
use crate::{
    context::Context,
    error::CommandResult,
    show::{
        bare, go_time,
        out::{Output, quiet},
        time_of,
    },
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::{Algo, Entry, Error, Key, Mtime, key};
use haul_store::Encrypted;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use std::ffi::OsString;

/// List a path as JSON
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Recurse into directories
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Include hashes
    #[arg(long)]
    hash: bool,
    /// Include only this type of hash (may repeat)
    #[arg(long, value_name = "HASH", value_parser = |s: &str| s.parse::<Algo>())]
    hash_type: Vec<Algo>,
    /// Omit modification times
    #[arg(long)]
    no_modtime: bool,
    /// Omit media types
    #[arg(long)]
    no_mimetype: bool,
    /// Include encrypted names
    #[arg(long)]
    encrypted: bool,
    /// Include ids of the underlying store
    #[arg(long)]
    original: bool,
    /// List files only
    #[arg(long)]
    files_only: bool,
    /// List directories only
    #[arg(long)]
    dirs_only: bool,
    /// Show only the entry at the path itself
    #[arg(long)]
    stat: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(list(args, ctx).await)
}

async fn list(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    let encrypted = if args.encrypted { Some(source.encrypted()?) } else { None };
    let server = ctx.flags.meta.use_server_modtime;
    let metadata = ctx.flags.meta.metadata;
    let facts = Facts {
        mtime: !args.no_modtime && !server,
        hashes: algos(&args, &source).await?,
        // Where a time costs a question for each file, the answer holds the media type too.
        meta: metadata || !args.no_mimetype && !args.no_modtime && !source.store.caps().mtime_listed,
    };
    let precision = source.store.caps().mtime.map_or(1_000_000_000, |p| p.as_nanos());
    let row = Row {
        args: &args,
        layout: go_time::rfc3339(precision),
        zone: TimeZone::system(),
        server,
        none: ctx.flags.config.default_time(),
        metadata,
        hashes: facts.hashes.clone(),
        buckets: source.lists_buckets(),
        encrypted,
    };
    if args.stat {
        return stat(&source, &facts, &row).await;
    }
    let (only_dirs, only_files) = (args.dirs_only, args.files_only);
    let entries = source.entries(ListOptions {
        max_depth: depth(&ctx.flags, args.recursive),
        dirs: !only_files,
        meta: facts.meta,
        mtimes: facts.mtime,
        ..Default::default()
    });
    let entries = entries.filter(move |e| std::future::ready(!only_dirs || e.as_ref().map_or(true, |e| e.is_dir())));
    let mut items = facts.of(&source, entries.boxed());
    let (mut out, mut failures) = (Output::stdout(), Failures::default());
    out.bytes(b"[\n")?;
    let mut first = true;
    while let Some(item) = items.next().await {
        let Some(mut item) = failures.keep(item) else { continue };
        item.failed.drain(..).for_each(|e| failures.add(e));
        let row = match row.value(&item) {
            Ok(value) => html_safe(&value.to_string()),
            Err(error) => {
                failures.add(error);
                continue;
            }
        };
        if !std::mem::take(&mut first) {
            out.bytes(b",\n")?;
        }
        out.bytes(row.as_bytes())?;
    }
    out.bytes(if first { b"]\n" } else { b"\n]\n" })?;
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// The hashes to show: those named, or all that the store has or computes where the bytes lie.
async fn algos(args: &Args, source: &Source) -> Result<Vec<Algo>> {
    if !args.hash_type.is_empty() || !args.hash {
        return Ok(args.hash_type.clone());
    }
    let caps = source.store.caps();
    if caps.cheap_reads {
        return Ok(Algo::ALL.into());
    }
    let there = haul::hash::computed_there(&source.store).await?;
    let mut algos = [caps.hashes_listed.as_slice(), caps.hashes_stored.as_slice(), &there].concat();
    algos.sort();
    algos.dedup();
    Ok(algos)
}

/// `--stat`: one entry, the folder itself or the file, indented; `null` when it isn't there.
async fn stat(source: &Source, facts: &Facts, row: &Row<'_>) -> Result<CommandResult> {
    let entry = match &source.file {
        Some(key) => source.store.stat(key).await?,
        None => Entry { key: Key::new(""), ..source.store.stat(&Key::new("")).await? },
    };
    let unwanted = if entry.is_dir() { row.args.files_only } else { row.args.dirs_only };
    let mut out = Output::stdout();
    if unwanted && row.args.files_only != row.args.dirs_only {
        out.bytes(b"null\n")?;
        out.flush()?;
        return Ok(CommandResult::Done);
    }
    let mut items = facts.of(source, futures::stream::iter([Ok(entry)]).boxed());
    let mut failures = Failures::default();
    while let Some(item) = items.next().await {
        let Some(mut item) = failures.keep(item) else { continue };
        item.failed.drain(..).for_each(|e| failures.add(e));
        out.bytes(tabbed(&row.value(&item)?)?.as_bytes())?;
        out.bytes(b"\n")?;
    }
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// JSON with tabs, as Go indents it.
fn tabbed(value: &Value) -> Result<String> {
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, format);
    serde::Serialize::serialize(value, &mut serializer)?;
    Ok(html_safe(&String::from_utf8(bytes)?))
}

/// Makes rows.
struct Row<'a> {
    args: &'a Args,
    layout: String,
    zone: TimeZone,
    server: bool,
    /// The time of what has none.
    none: Mtime,
    metadata: bool,
    hashes: Vec<Algo>,
    buckets: bool,
    /// For the names as they are stored.
    encrypted: Option<&'a dyn Encrypted>,
}

impl Row<'_> {
    fn value(&self, item: &ListedEntry) -> Result<Value, Error> {
        let entry = &item.entry;
        let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes).into_owned());
        let mut row = Map::new();
        row.insert("Path".into(), text(bare(entry.key.stored())));
        row.insert("Name".into(), text(key::name(entry.key.stored())));
        if let Some(encrypted) = self.encrypted.filter(|_| !entry.key.is_root()) {
            let hidden = encrypted.hidden(&Key::new(entry.key.stored()))?;
            row.insert("EncryptedPath".into(), text(bare(hidden.stored())));
            row.insert("Encrypted".into(), text(key::name(bare(hidden.stored()))));
        }
        // The size of a directory's contents is unknown without a listing.
        let size = if entry.is_dir() || !entry.sized { Value::from(-1) } else { Value::from(entry.size) };
        row.insert("Size".into(), size);
        if !self.args.no_mimetype {
            row.insert("MimeType".into(), item.mime().into());
        }
        row.insert("ModTime".into(), self.time(entry).into());
        row.insert("IsDir".into(), entry.is_dir().into());
        if !self.hashes.is_empty() && !entry.is_dir() {
            row.insert("Hashes".into(), item.hashes_json(&self.hashes));
        }
        if let Some(tier) = item.tier() {
            row.insert("Tier".into(), tier.into());
        }
        if self.buckets && entry.is_dir() && entry.key.parent().is_root() {
            row.insert("IsBucket".into(), true.into());
        }
        if self.metadata && entry.meta.as_ref().is_some_and(|m| !m.is_empty()) {
            row.insert("Metadata".into(), item.metadata());
        }
        Ok(row.into())
    }

    fn time(&self, entry: &Entry) -> String {
        match self.args.no_modtime {
            true => String::new(),
            false => go_time::format(time_of(entry, self.server, self.none), &self.layout, &self.zone),
        }
    }
}

/// Go writes these characters as escapes so that JSON can stand in HTML and JavaScript.
fn html_safe(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
