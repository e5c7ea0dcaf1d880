//! `lsf`: names, or a format of the user's, one entry a line; made for scripts.

use super::{
    item::{Facts, ListedEntry},
    listing::{Failures, Source, depth},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    show::{
        bare, csv, go_time,
        out::{Output, quiet},
        time_of,
    },
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::{Algo, Error, Key, Mtime, key};
use haul_store::Encrypted;
use jiff::tz::TimeZone;
use std::ffi::OsString;

/// List a path for scripts
///
/// The format is a row of letters: p path, s size, t modification time, h hash, i id, o original id, m media type,
/// e encrypted name, T tier, M metadata.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Fields to show for each entry
    #[arg(long, short = 'F', default_value = "p")]
    format: String,
    /// Separator between fields
    #[arg(long, short = 's', default_value = ";", allow_hyphen_values = true)]
    separator: String,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// End names of directories with a slash
    #[arg(long, short = 'd', num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "true", action = clap::ArgAction::Set, hide_possible_values = true)]
    dir_slash: bool,
    /// List files only
    #[arg(long)]
    files_only: bool,
    /// List directories only
    #[arg(long)]
    dirs_only: bool,
    /// Recurse into directories
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Start paths with a slash
    #[arg(long)]
    absolute: bool,
    /// Type of hash that h shows
    #[arg(long, value_name = "HASH", default_value = "md5", value_parser = |s: &str| s.parse::<Algo>())]
    hash: Algo,
    /// Layout of times, written as in Go (2006-01-02 15:04:05), or a name such as RFC3339, unix, unixnano, max
    #[arg(long, short = 't', default_value = "")]
    time_format: String,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(list(args, ctx).await)
}

async fn list(args: Args, ctx: &Context) -> Result<CommandResult> {
    let facts = facts(&args, ctx.flags.meta.use_server_modtime)?;
    let source = Source::open(ctx, &args.path).await?;
    let options = ListOptions {
        max_depth: depth(&ctx.flags, args.recursive),
        dirs: !args.files_only,
        meta: facts.meta,
        mtimes: facts.mtime,
        ..Default::default()
    };
    let precision = source.store.caps().mtime.map_or(1_000_000_000, |p| p.as_nanos());
    let layout = match args.time_format.as_str() {
        "" => go_time::SECONDS.to_string(),
        "max" => go_time::to_precision(precision),
        other => go_time::layout(other).to_string(),
    };
    let only_dirs = args.dirs_only;
    let shown = source.entries(options);
    let shown = shown.filter(move |e| std::future::ready(!only_dirs || e.as_ref().map_or(true, |e| e.is_dir())));
    let mut items = facts.of(&source, shown.boxed());
    let (server, none) = (ctx.flags.meta.use_server_modtime, ctx.flags.config.default_time());
    let encrypted = if args.format.contains('e') { Some(source.encrypted()?) } else { None };
    let line = Line { args: &args, layout, zone: TimeZone::system(), server, none, encrypted };
    let (mut out, mut failures) = (Output::stdout(), Failures::default());
    while let Some(item) = items.next().await {
        let Some(mut item) = failures.keep(item) else { continue };
        item.failed.drain(..).for_each(|e| failures.add(e));
        match line.of(&item) {
            Ok(line) => out.bytes(&line)?,
            Err(error) => failures.add(error),
        }
    }
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// Facts of the format beyond those of listings.
fn facts(args: &Args, server: bool) -> Result<Facts> {
    let mut facts = Facts::default();
    for letter in args.format.chars() {
        match letter {
            'p' | 's' | 'i' | 'o' | 'e' => {}
            't' => facts.mtime = !server,
            'h' => facts.hashes = vec![args.hash],
            'm' | 'T' | 'M' => facts.meta = true,
            other => {
                return Err(usage(format!("unknown format character '{other}': use p, s, t, h, i, o, m, e, T, M")));
            }
        }
    }
    Ok(facts)
}

/// Makes lines.
struct Line<'a> {
    args: &'a Args,
    layout: String,
    zone: TimeZone,
    server: bool,
    /// The time of what has none.
    none: Mtime,
    /// For the names as they are stored.
    encrypted: Option<&'a dyn Encrypted>,
}

impl Line<'_> {
    fn of(&self, item: &ListedEntry) -> Result<Vec<u8>, Error> {
        let fields = self.args.format.chars().map(|letter| self.field(letter, item));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let separator = self.args.separator.as_str();
        let mut line = Vec::new();
        if self.args.csv {
            // Without a separator of its own rclone's csv has commas.
            let comma = if separator == ";" { ',' } else { separator.chars().next().unwrap_or(',') };
            csv::push_line(&mut line, &fields, comma);
        } else {
            line = fields.join(separator.as_bytes());
        }
        line.push(b'\n');
        Ok(line)
    }

    fn field(&self, letter: char, item: &ListedEntry) -> Result<Vec<u8>, Error> {
        let entry = &item.entry;
        Ok(match letter {
            'e' => self.encrypted_name(&entry.key)?,
            'p' => self.path(item),
            's' if entry.is_dir() => b"-1".to_vec(),
            's' if !entry.sized => "-1".into(),
            's' => entry.size.to_string().into(),
            't' => self.time(item).into(),
            'h' => item.hash(self.args.hash).unwrap_or_default().into(),
            'm' => item.mime().into(),
            'T' => item.tier().unwrap_or_default().into(),
            'M' => item.metadata_json().into(),
            // No store of ours has an id apart from its key.
            _ => Vec::new(),
        })
    }

    fn encrypted_name(&self, key: &Key) -> Result<Vec<u8>, Error> {
        let Some(encrypted) = self.encrypted else { return Ok(Vec::new()) };
        let hidden = encrypted.hidden(&Key::new(key.stored()))?;
        Ok([key::name(bare(hidden.stored())), self.end(key)].concat())
    }

    fn path(&self, item: &ListedEntry) -> Vec<u8> {
        let name = bare(item.entry.key.stored());
        let lead: &[u8] = if self.args.absolute && !name.starts_with(b"/") { b"/" } else { b"" };
        [lead, name, self.end(&item.entry.key)].concat()
    }

    fn end(&self, key: &Key) -> &'static [u8] {
        if key.is_dir() && self.args.dir_slash { b"/" } else { b"" }
    }

    fn time(&self, item: &ListedEntry) -> String {
        let time = time_of(&item.entry, self.server, self.none);
        match self.args.time_format.as_str() {
            "unix" => time.secs().to_string(),
            "unixnano" => time.0.to_string(),
            _ => go_time::format(time, &self.layout, &self.zone),
        }
    }
}
