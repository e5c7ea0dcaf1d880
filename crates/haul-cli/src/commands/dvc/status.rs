//! `dvc status`: in dvc's words and form.

use super::{Opened, RevisionArgs, TargetArgs, TransferArgs, ask_ahead, by_remote, open, open_remote};
use crate::{
    context::Context,
    error::{CommandResult, code},
    print,
};
use anyhow::Result;
use haul_cas::remote::{Proof, look};
use haul_dvc::{
    history::promised,
    status::{Changes, status},
    wanted::content_of,
};
use serde_json::{Map, Value, json};

/// Arguments of `dvc status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    which: RevisionArgs,
    #[command(flatten)]
    place: TransferArgs,
    /// Compare cache and remote
    #[arg(long, short = 'c')]
    cloud: bool,
    /// Look for every file on the remote, without trusting the lists of directories
    #[arg(long)]
    verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if args.cloud || args.place.remote.is_some() {
        return cloud(args, ctx).await;
    }
    let opened = open(ctx)?;
    let chosen = opened.choose(&args.targets)?;
    let mut state = opened.repo.state();
    let mut changes = status(&opened.repo, &opened.index, &chosen, &mut state).await?;
    state.save();
    for one in &mut changes {
        one.name = shown_name(&opened, &one.name);
        for (path, _) in one.deps.iter_mut().chain(&mut one.outs) {
            *path = opened.shown(path);
        }
    }
    if args.json {
        print::line(&serde_json::to_string(&as_json(&changes))?)?;
        return Ok(CommandResult::Done);
    }
    if ctx.flags.log.quiet {
        return Ok(if changes.is_empty() { CommandResult::Done } else { CommandResult::Exit(code::OTHER) });
    }
    match (changes.is_empty(), opened.index.outs.is_empty()) {
        (true, true) => print::line("There are no data or pipelines tracked in this project yet.")?,
        (true, false) => print::line("Data and pipelines are up to date.")?,
        _ => print::text(&as_text(&changes))?,
    }
    Ok(CommandResult::Done)
}

/// The name of a `.dvc` file or stage, from the current folder.
fn shown_name(opened: &Opened, name: &str) -> String {
    let (file, stage) = match name.rsplit_once("dvc.yaml:") {
        Some((folder, stage)) => (format!("{folder}dvc.yaml"), stage),
        None if name.ends_with(".dvc") => return opened.shown(name),
        None => ("dvc.yaml".to_string(), name),
    };
    match opened.shown(&file) {
        here if here == "dvc.yaml" => stage.into(),
        file => format!("{file}:{stage}"),
    }
}

fn groups(changes: &Changes) -> impl Iterator<Item = (&'static str, &[(String, haul_dvc::status::Change)])> {
    let both = [("changed deps", &changes.deps[..]), ("changed outs", &changes.outs[..])];
    both.into_iter().filter(|(_, list)| !list.is_empty())
}

fn as_json(changes: &[Changes]) -> Value {
    let one = |changes: &Changes| {
        let group = |(name, list): (&str, &[(String, haul_dvc::status::Change)])| {
            let words: Map<String, Value> =
                list.iter().map(|(path, change)| (path.clone(), json!(change.word()))).collect();
            json!({ name: words })
        };
        (changes.name.clone(), Value::Array(groups(changes).map(group).collect()))
    };
    Value::Object(changes.iter().map(one).collect())
}

fn as_text(changes: &[Changes]) -> String {
    let mut text = String::new();
    for changes in changes {
        text.push_str(&format!("{}:\n", changes.name));
        for (name, list) in groups(changes) {
            text.push_str(&format!("\t{name}:\n"));
            for (path, change) in list {
                text.push_str(&format!("\t\t{}{path}\n", padded(change.word())));
            }
        }
    }
    text
}

/// A word in a column of 20, as dvc has it.
fn padded(word: &str) -> String {
    format!("{:20}", format!("{word}:"))
}

async fn cloud(args: Args, ctx: &Context) -> Result<CommandResult> {
    let mut opened = open(ctx)?;
    opened.check_named(args.place.remote.as_deref())?;
    opened.add_revisions(args.which).await?;
    let chosen: Vec<_> = opened.choose(&args.targets)?.into_iter().filter(|c| c.tracked.out.push).collect();
    let mut found: Vec<(String, &'static str)> = Vec::new();
    let mut name = args.place.remote.clone().unwrap_or_default();
    for (remote, chosen) in by_remote(chosen, args.place.remote.as_deref()) {
        let remote = opened.remote(remote.as_deref())?;
        name.clone_from(&remote.name);
        let store = open_remote(ctx, &remote)?;
        let proof = if args.verify { Proof::Full } else { Proof::Sampled };
        let repo = &opened.repo;
        let here = async {
            let wanted = content_of(repo, &chosen).await?;
            let held = repo.held(wanted.all().to_vec()).await?;
            Ok((wanted, held))
        };
        let ((ahead, earlier), (mut wanted, held)) =
            futures::try_join!(ask_ahead(ctx, repo, &store, &chosen, proof), here)?;
        wanted.held(&held);
        let there = look(&store, &wanted, promised(repo, earlier), proof, ahead).await?.there;
        for (address, held) in held {
            let state = match (there.contains(&address), held) {
                (true, Some(_)) => continue,
                (false, Some(_)) => "new",
                (true, None) => "deleted",
                (false, None) => "missing",
            };
            found.push((opened.shown(&wanted.name(&address)), state));
        }
    }
    found.sort_unstable();
    if args.json {
        let all: Map<String, Value> = found.into_iter().map(|(path, state)| (path, json!(state))).collect();
        print::line(&Value::Object(all).to_string())?;
        return Ok(CommandResult::Done);
    }
    if ctx.flags.log.quiet {
        return Ok(if found.is_empty() { CommandResult::Done } else { CommandResult::Exit(code::OTHER) });
    }
    if found.is_empty() {
        print::line(&format!("Cache and remote '{name}' are in sync."))?;
        return Ok(CommandResult::Done);
    }
    let lines: String = found.iter().map(|(path, state)| format!("\t{}{path}\n", padded(state))).collect();
    print::text(&lines)?;
    Ok(CommandResult::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_dvc::status::Change;

    #[test]
    fn words_and_columns_are_dvcs() {
        let changes = [Changes {
            name: "train".into(),
            deps: vec![("data".into(), Change::Modified)],
            outs: vec![("model".into(), Change::NotInCache)],
        }];
        assert_eq!(
            as_text(&changes),
            "train:\n\tchanged deps:\n\t\tmodified:           data\n\tchanged outs:\n\t\tnot in cache:       model\n"
        );
        assert_eq!(
            as_json(&changes).to_string(),
            r#"{"train":[{"changed deps":{"data":"modified"}},{"changed outs":{"model":"not in cache"}}]}"#
        );
    }
}
