//! `haul help`, `haul help COMMAND`, `haul help flags`.

use crate::{
    app,
    context::Context,
    error::{Outcome, usage},
    print,
    text::nearest,
};
use anyhow::Result;

/// On what.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A command, or flags and a word that the flags shown must hold
    topic: Vec<String>,
}

/// Prints the help.
pub async fn run(args: Args, _: &Context) -> Result<Outcome> {
    let words: Vec<&str> = args.topic.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        ["flags"] => flags(""),
        ["flags", word] => match flags(word) {
            none if none.trim().is_empty() => return Err(usage(format!("no flag matches {word:?}"))),
            found => found,
        },
        ["flags", ..] => return Err(usage("haul help flags takes one word")),
        path => of(path)?,
    };
    print::text(&text)?;
    Ok(Outcome::Done)
}

fn of(path: &[&str]) -> Result<String> {
    let mut tree = app::command();
    tree.build();
    let mut command = &mut tree;
    for name in path {
        let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_string()).collect();
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            let near = nearest(name, names.iter().map(String::as_str));
            usage(format!(
                "unknown command {name:?}{}",
                near.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default()
            ))
        })?;
    }
    Ok(command.render_long_help().to_string())
}

/// The flags that hold `word` in name or help, in their groups.
fn flags(word: &str) -> String {
    let mut all = app::command_with_flags();
    let lower = word.to_lowercase();
    let holds = |arg: &clap::Arg| {
        let help = arg.get_help().map(|h| h.to_string()).unwrap_or_default();
        let heading = arg.get_help_heading().unwrap_or_default();
        [arg.get_long().unwrap_or_default(), &help, heading].iter().any(|t| t.to_lowercase().contains(&lower))
    };
    let groups: Vec<Vec<clap::Arg>> = vec![all.get_arguments().filter(|a| holds(a)).cloned().collect()];
    let shown = clap::Command::new("flags")
        .disable_help_flag(true)
        .help_template("{all-args}\n")
        .args(groups.into_iter().flatten());
    all = shown;
    all.render_help().to_string()
}
