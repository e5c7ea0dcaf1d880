//! `snapshot list` and `snapshot diff`: what there is, without any content.

use super::{Remote, named};
use crate::{
    context::Context,
    error::{CommandResult, code, error_text, one_line, usage},
    print,
    show::go_time,
};
use anyhow::Result;
use haul_core::{Error, ErrorKind, hash::to_hex, units::size_text};
use haul_snapshot::{
    diff,
    name::Version,
    pull::open,
    record::Record,
    versions::{existing, records},
};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// Bytes of differences that are printed together.
const PRINTED: usize = 64 << 10;

/// Arguments of `snapshot list`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    at: Remote,
    /// Only this snapshot, with all its versions
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON, with all versions
    #[arg(long)]
    json: bool,
}

/// Arguments of `snapshot diff`.
#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    #[command(flatten)]
    at: Remote,
    /// The earlier version
    #[arg(value_name = "NAME@VERSION")]
    from: String,
    /// The later version, also of another snapshot [default: the newest of the same]
    #[arg(value_name = "NAME[@VERSION]")]
    to: Option<String>,
}

/// Runs `list`.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if let Some(name) = &args.name {
        haul_snapshot::name::check(name).map_err(usage)?;
    }
    let store = ctx.open(&args.at.remote)?;
    let all = existing(&store, args.name.as_deref()).await?;
    if let Some(name) = args.name.as_ref().filter(|name| !all.contains_key(*name)) {
        let message = format!("no snapshot {name:?}");
        return Err(Error::new(ErrorKind::NotFound, "list", message).into());
    }
    let (mut values, mut rows, mut broken) = (Vec::new(), Vec::new(), false);
    for (name, versions) in &all {
        let count = versions.len();
        // Without a name each snapshot is a row, of its newest version.
        let versions = if args.name.is_none() && !args.json { &versions[count.saturating_sub(1)..] } else { versions };
        let records = records(&store, name, versions).await;
        for (version, record) in versions.iter().zip(records) {
            match record {
                Ok(record) if args.json => values.push(as_json(version, &record)),
                Ok(record) => rows.push(row(&record, version, args.name.is_none().then_some(count))),
                Err(error) => {
                    broken = true;
                    tracing::error!("{name}@{version}: {}", error_text(&error));
                }
            }
        }
    }
    if args.json {
        print::line(&Value::Array(values).to_string())?;
    } else if !rows.is_empty() {
        print::text(&table(&args, rows))?;
    }
    Ok(if broken { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}

fn row(record: &Record, version: &Version, versions: Option<usize>) -> Vec<String> {
    let time = go_time::format(record.time, go_time::SECONDS, &TimeZone::system());
    let mut row = Vec::from_iter(versions.map(|count| format!("{count}")));
    row.extend([time, record.totals.files.to_string(), size_text(record.totals.bytes)]);
    row.push(match versions {
        Some(_) => format!("{}@{version}", one_line(&record.name)),
        None => version.to_string(),
    });
    row
}

/// Rows below their headings; numbers stand at the right, and what is longest and of any length comes last.
fn table(args: &Args, rows: Vec<Vec<String>>) -> String {
    let headings: &[&str] = match args.name {
        None => &["VERSIONS", "NEWEST", "FILES", "SIZE", "SNAPSHOT"],
        Some(_) => &["TIME", "FILES", "SIZE", "VERSION"],
    };
    let headings = vec![headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<_>>()];
    let all: Vec<Vec<String>> = headings.into_iter().chain(rows).collect();
    let last = all[0].len() - 1;
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..last).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}  "));
        format!("{}{}\n", cells.collect::<String>(), row[last])
    };
    all.iter().map(line).collect()
}

fn as_json(version: &Version, record: &Record) -> Value {
    let time = jiff::Timestamp::from_nanosecond(record.time.0).map(|time| time.to_string()).unwrap_or_default();
    json!({
        "name": record.name,
        "version": version.to_string(),
        "id": version.id(),
        "time": time,
        "files": record.totals.files,
        "bytes": record.totals.bytes,
        "folders": record.totals.dirs,
        "symlinks": record.totals.links,
        "list": to_hex(&record.tree),
        "dvc": record.dir_address().text(),
    })
}

/// Runs `diff`.
pub async fn diff(args: DiffArgs, ctx: &Context) -> Result<CommandResult> {
    let (name, from) = named(&args.from)?;
    if from.is_none() && args.to.is_none() {
        return Err(usage("give the version to compare the newest with: NAME@VERSION"));
    }
    let (other, to) = args.to.as_deref().map(named).transpose()?.unwrap_or((name.clone(), None));
    let store = ctx.open(&args.at.remote)?;
    let (a, b) = (open(&store, &name, from.as_deref()).await?, open(&store, &other, to.as_deref()).await?);
    let (mut lines, mut differ) = (String::new(), false);
    for (change, node) in diff::diff(&a.tree, &b.tree) {
        differ = true;
        lines.push_str(&format!("{} {}\n", change.sign(), one_line(&node.shown())));
        if lines.len() > PRINTED {
            print::text(&std::mem::take(&mut lines))?;
        }
    }
    print::text(&lines)?;
    Ok(if differ { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}
