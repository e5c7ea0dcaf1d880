//! `snapshot forget`: removes versions by rules, and says why the others stay.

use super::Remote;
use crate::{
    context::Context,
    error::{CommandResult, one_line, usage},
    flags::values::{Span, duration, span},
    print,
    show::go_time,
};
use anyhow::Result;
use haul::{Answer, Confirm as _};
use haul_core::{Error, ErrorKind, Mtime};
use haul_snapshot::{
    name::{self, Version},
    retention::{Rules, keep},
    versions::{existing, records, remove},
};
use jiff::tz::TimeZone;

/// Arguments of `snapshot forget`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    at: Remote,
    /// Only this snapshot [default: all, each separately]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Keep the newest N versions
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_last: u32,
    /// Keep the newest version of each of the last N hours that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_hourly: u32,
    /// Keep the newest version of each of the last N days that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_daily: u32,
    /// Keep the newest version of each of the last N weeks that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_weekly: u32,
    /// Keep the newest version of each of the last N months that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_monthly: u32,
    /// Keep the newest version of each of the last N years that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_yearly: u32,
    /// Keep all versions that are at most this much older than the newest, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = span)]
    keep_within: Option<Span>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if let Some(name) = &args.name {
        name::check(name).map_err(usage)?;
    }
    let rules = Rules {
        last: args.keep_last,
        hourly: args.keep_hourly,
        daily: args.keep_daily,
        weekly: args.keep_weekly,
        monthly: args.keep_monthly,
        yearly: args.keep_yearly,
        within: args.keep_within.and_then(|within| duration(Some(within))),
    };
    if rules.none() {
        return Err(usage("say what to keep: --keep-last N, --keep-daily N, --keep-within 30d …"));
    }
    let store = ctx.open(&args.at.remote)?;
    let all = existing(&store, args.name.as_deref()).await?;
    if let Some(name) = args.name.as_ref().filter(|name| !all.contains_key(*name)) {
        return Err(Error::new(ErrorKind::NotFound, "forget", format!("no snapshot {name:?}")).into());
    }
    // A version that can't be read may be all that is left of a folder: nothing goes before somebody has looked at it.
    for (name, versions) in &all {
        for (version, record) in versions.iter().zip(records(&store, name, versions).await) {
            if let Err(error) = record {
                let message = format!("Refused to delete: {name}@{version}: {}", error.message());
                return Err(Error::new(error.kind(), "forget", message).into());
            }
        }
    }
    let (mut gone, mut text) = (Vec::new(), String::new());
    for (name, versions) in &all {
        let times: Vec<Mtime> = versions.iter().map(Version::time).collect();
        for (version, why) in versions.iter().zip(keep(&rules, &times, &TimeZone::system())) {
            let time = go_time::format(version.time(), go_time::SECONDS, &TimeZone::system());
            let what = if why.is_empty() { "remove" } else { "keep" };
            let why = if why.is_empty() { String::new() } else { format!("  ({})", why.join(", ")) };
            text.push_str(&format!("{what:<6}  {time}  {}@{version}{why}\n", one_line(name)));
            if what == "remove" {
                gone.push((name, version));
            }
        }
    }
    print::text(&text)?;
    let prompt = crate::prompt::Prompt::new(ctx.screen.clone(), ctx.cancel.clone());
    let mut removed = 0;
    for (name, version) in &gone {
        let label = format!("{name}@{version}");
        let stopped = || Error::new(ErrorKind::Cancelled, "forget", "stopped");
        if ctx.cancel.is_cancelled() {
            return Err(stopped().into());
        }
        if ctx.flags.config.dry_run {
            tracing::warn!("{label}: Skipped delete as --dry-run is set");
            continue;
        }
        let answer = match ctx.flags.config.interactive {
            true => prompt.ask("delete", &name::key(name, version)),
            false => Answer::Yes,
        };
        if answer == Answer::Quit {
            return Err(stopped().into());
        }
        if answer == Answer::Yes {
            remove(&store, name, version).await?;
            removed += 1;
            tracing::info!("{label}: Deleted; its content stays until haul snapshot gc");
        }
    }
    if removed > 0 {
        let s = if removed == 1 { "" } else { "s" };
        print::line(&format!("{removed} version{s} removed; haul snapshot gc frees their content."))?;
    }
    Ok(CommandResult::Done)
}
