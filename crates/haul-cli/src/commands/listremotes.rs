//! `haul listremotes`: the remotes of the config files and the environment.

use crate::{
    context::Context,
    error::{CommandResult, usage},
    print,
};
use anyhow::Result;
use haul_core::filter::Pattern;
use haul_remotes::Environment;
use std::{cmp::Ordering, collections::BTreeMap};

/// How to list.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show types and descriptions too
    #[arg(long)]
    long: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
    /// Only remotes whose name, type, source or description matches this pattern
    filter: Option<String>,
    /// Only remotes whose name matches this pattern
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only remotes whose type matches this pattern
    #[arg(long = "type", value_name = "PATTERN")]
    kind: Option<String>,
    /// Only remotes whose description matches this pattern
    #[arg(long, value_name = "PATTERN")]
    description: Option<String>,
    /// Only remotes of this source: file or environment
    #[arg(long, value_name = "PATTERN")]
    source: Option<String>,
    /// Patterns must match the whole text
    #[arg(long)]
    exact: bool,
    /// Order by name, type, source, description; =descending reverses a field
    #[arg(long, value_name = "FIELD,…")]
    order_by: Option<String>,
}

/// A remote's attributes, in the order of [`FIELDS`].
type Remote = [String; 4];

const FIELDS: [&str; 4] = ["name", "type", "source", "description"];

/// Prints the remotes.
pub async fn run(args: Args, context: &Context) -> Result<CommandResult> {
    let order = order(args.order_by.as_deref().unwrap_or("name")).map_err(usage)?;
    let wanted = wanted(&args).map_err(usage)?;
    let mut remotes = remotes(context)?;
    remotes.retain(|remote| wanted(remote));
    remotes.sort_by(|a, b| {
        let by = order.iter().map(|(field, turned)| {
            let ordering = a[*field].cmp(&b[*field]);
            if *turned { ordering.reverse() } else { ordering }
        });
        by.fold(Ordering::Equal, Ordering::then)
    });
    if args.json {
        print::line(&json(&remotes)?)?;
        return Ok(CommandResult::Done);
    }
    let width = remotes.iter().map(|[name, ..]| name.chars().count() + 1).max().unwrap_or(0);
    for [name, kind, _, description] in remotes {
        let name = format!("{name}:");
        let line = if args.long { format!("{name:width$} {kind} {description}") } else { name };
        print::line(line.trim_end())?;
    }
    Ok(CommandResult::Done)
}

/// The remotes that pass the filters.
///
/// Errors: an invalid pattern.
fn wanted(args: &Args) -> Result<impl Fn(&Remote) -> bool + use<>, String> {
    let pattern = |text: &Option<String>| {
        let glob = text.as_ref().map(|text| if args.exact { format!("/{text}") } else { format!("/**{text}**") });
        let wrong = |why: String| format!("the pattern {:?} isn't one: {why}", text.as_deref().unwrap_or_default());
        glob.map(|glob| Pattern::new(&glob, true).map_err(wrong)).transpose()
    };
    let any = pattern(&args.filter)?;
    let each = [pattern(&args.name)?, pattern(&args.kind)?, pattern(&args.source)?, pattern(&args.description)?];
    Ok(move |remote: &Remote| {
        let fits = |(pattern, text): (&Option<Pattern>, &String)| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(text.as_bytes()))
        };
        each.iter().zip(remote).all(fits) && remote.iter().any(|text| fits((&any, text)))
    })
}

/// Fields by number, and whether they are turned round.
///
/// Errors: an unknown field or direction, in one line.
fn order(text: &str) -> Result<Vec<(usize, bool)>, String> {
    let one = |part: &str| {
        let part = part.to_lowercase();
        let (name, direction) = part.split_once('=').unwrap_or((&part, "asc"));
        let field = FIELDS.iter().position(|field| *field == name);
        let field = field.ok_or_else(|| format!("can't order by {name:?}: choose from {}", FIELDS.join(", ")))?;
        match direction {
            "asc" | "ascending" => Ok((field, false)),
            "desc" | "descending" => Ok((field, true)),
            other => Err(format!("unknown direction {other:?}: choose ascending or descending")),
        }
    };
    text.split(',').map(one).collect()
}

/// All of them, by name.
fn remotes(context: &Context) -> Result<Vec<Remote>> {
    let config = context.session.config()?;
    let of = |name: &str, key: &str| config.get(name, key).unwrap_or_default();
    let mut all: BTreeMap<String, Remote> = BTreeMap::new();
    for name in config.remotes() {
        all.insert(name.into(), [name.into(), of(name, "type"), "file".into(), of(name, "description")]);
    }
    for (name, kind) in from_environment(context.session.environment()) {
        all.entry(name.clone()).or_insert([name, kind, "environment".into(), String::new()]);
    }
    Ok(all.into_values().collect())
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

fn json(remotes: &[Remote]) -> Result<String> {
    let one = |[name, kind, source, description]: &Remote| serde_json::json!({ "name": name, "type": kind, "source": source, "description": description });
    Ok(serde_json::to_string_pretty(&remotes.iter().map(one).collect::<Vec<_>>())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_sort_orders_are_refused() {
        assert_eq!(order("Type=desc,name"), Ok(vec![(1, true), (0, false)]));
        assert_eq!(
            order("-name").unwrap_err(),
            "can't order by \"-name\": choose from name, type, source, description"
        );
        assert_eq!(order("type=x").unwrap_err(), "unknown direction \"x\": choose ascending or descending");
    }
}
