//! `snapshot list` and `snapshot diff`: what there is, without any content.

use super::{Remote, in_words, named};
use crate::{
    context::Context,
    error::{Outcome, code, one_line, usage},
    print,
};
use anyhow::Result;
use haul_core::{Error, ErrorKind, Key, hash::to_hex};
use haul_snapshot::{
    diff,
    name::Version,
    pull::open,
    record::Record,
    versions::{records, versions},
};
use serde_json::{Value, json};

/// Bytes of differences that are printed together.
const PRINTED: usize = 64 << 10;

/// Arguments of `snapshot list`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    at: Remote,
    /// Only this one, with all its versions
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// As JSON, with all versions
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
    /// The later version; of another snapshot too [default: the newest of the same]
    #[arg(value_name = "NAME[@VERSION]")]
    to: Option<String>,
}

/// Runs `list`.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    if let Some(name) = &args.name {
        haul_snapshot::name::check(name).map_err(usage)?;
    }
    let store = ctx.open(&args.at.remote)?;
    let all = versions(&store, args.name.as_deref()).await?;
    if all.is_empty() {
        // A mistyped place is no place without snapshots.
        store.stat(&Key::new("")).await?;
    }
    if let Some(name) = args.name.as_ref().filter(|name| !all.contains_key(*name)) {
        let message = format!("no snapshot {name:?}");
        return Err(Error::new(ErrorKind::NotFound, "list", message).into());
    }
    if args.name.is_none() && !args.json {
        for (name, versions) in &all {
            let newest = versions.last().map(Version::to_string).unwrap_or_default();
            let count = if versions.len() == 1 { "1 version".into() } else { format!("{} versions", versions.len()) };
            print::line(&format!("{}\t{count}\t{newest}", one_line(name)))?;
        }
        return Ok(Outcome::Done);
    }
    let (mut values, mut broken) = (Vec::new(), false);
    for (name, versions) in &all {
        let records = records(&store, name, versions).await;
        for (version, record) in versions.iter().zip(records) {
            match record {
                Ok(record) if args.json => values.push(as_json(version, &record)),
                Ok(record) => print::line(&format!("{version}\t{}", in_words(&record.totals)))?,
                Err(error) => {
                    broken = true;
                    tracing::error!("{name}@{version}: {error}");
                }
            }
        }
    }
    if args.json {
        print::line(&Value::Array(values).to_string())?;
    }
    Ok(if broken { Outcome::Exit(code::OTHER) } else { Outcome::Done })
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
pub async fn diff(args: DiffArgs, ctx: &Context) -> Result<Outcome> {
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
    Ok(if differ { Outcome::Exit(code::OTHER) } else { Outcome::Done })
}
