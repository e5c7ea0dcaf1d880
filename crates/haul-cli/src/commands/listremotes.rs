//! `haul listremotes`: the remotes of the config files and the environment.

use crate::{context::Context, error::Outcome, print};
use anyhow::Result;
use haul_remotes::Environment;
use std::collections::BTreeMap;

/// How to list.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show types and descriptions too
    #[arg(long)]
    long: bool,
    /// As lines of JSON
    #[arg(long)]
    json: bool,
    /// Only remotes whose name holds this
    filter: Option<String>,
}

/// Prints the remotes by name.
pub async fn run(args: Args, context: &Context) -> Result<Outcome> {
    let remotes = remotes(context)?;
    let wanted = |name: &str| args.filter.as_deref().is_none_or(|f| name.contains(f));
    let remotes: Vec<_> = remotes.into_iter().filter(|(name, _)| wanted(name)).collect();
    if args.json {
        print::line(&json(&remotes)?)?;
        return Ok(Outcome::Done);
    }
    let width = remotes.iter().map(|(name, _)| name.chars().count() + 1).max().unwrap_or(0);
    for (name, [kind, description]) in remotes {
        let name = format!("{name}:");
        let line = if args.long { format!("{name:width$} {kind} {description}") } else { name };
        print::line(line.trim_end())?;
    }
    Ok(Outcome::Done)
}

/// Names with type and description.
fn remotes(context: &Context) -> Result<BTreeMap<String, [String; 2]>> {
    let config = context.session.config()?;
    let of = |name: &str, key: &str| config.get(name, key).unwrap_or_default();
    let mut all: BTreeMap<String, [String; 2]> = BTreeMap::new();
    for name in config.remotes() {
        all.insert(name.into(), [of(name, "type"), of(name, "description")]);
    }
    for (name, kind) in from_environment(context.session.environment()) {
        all.entry(name).or_insert([kind, String::new()]);
    }
    Ok(all)
}

/// Remotes that variables such as `RCLONE_CONFIG_MYREMOTE_TYPE` define; their names are in lower case.
fn from_environment(environment: &Environment) -> Vec<(String, String)> {
    let name = |variable: &str| {
        let rest = variable.strip_prefix("HAUL_CONFIG_").or_else(|| variable.strip_prefix("RCLONE_CONFIG_"))?;
        let name = rest.strip_suffix("_TYPE").filter(|n| !n.is_empty())?.to_lowercase();
        Some((name, environment.get(variable)?.to_string_lossy().into_owned()))
    };
    environment.names().filter_map(name).collect()
}

fn json(remotes: &[(String, [String; 2])]) -> Result<String> {
    let one = |(name, [kind, description]): &(String, [String; 2])| serde_json::json!({ "name": name, "type": kind, "description": description });
    Ok(serde_json::to_string_pretty(&remotes.iter().map(one).collect::<Vec<_>>())?)
}
