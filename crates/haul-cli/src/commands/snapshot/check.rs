//! `snapshot check`.

use super::{Remote, named};
use crate::{
    context::Context,
    error::{CommandResult, code, error_text, one_line},
    flags::transfer::Verify,
    print,
};
use anyhow::Result;
use haul_core::{Error, ErrorKind};
use haul_snapshot::{
    check::{Checked, CheckedContent, Defect, check},
    name,
    pull::open,
    versions::existing,
};

/// Arguments of `snapshot check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    at: Remote,
    /// Only this snapshot, or only this version of it [default: all]
    #[arg(value_name = "NAME[@VERSION]")]
    name: Option<String>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let read = ctx.flags.copy.verify == Some(Verify::Read);
    let wanted = args.name.as_deref().map(named).transpose()?;
    let store = ctx.open(&args.at.remote)?;
    let all = existing(&store, wanted.as_ref().map(|(name, _)| name.as_str())).await?;
    if let Some((name, _)) = wanted.as_ref().filter(|(name, _)| !all.contains_key(name)) {
        return Err(Error::new(ErrorKind::NotFound, "check", format!("no snapshot {name:?}")).into());
    }
    let typed = wanted.as_ref().and_then(|(_, version)| version.as_deref());
    let (mut known, mut amiss, mut damaged) = (CheckedContent::default(), false, false);
    for (name, versions) in &all {
        let one;
        let chosen = match typed {
            Some(_) => {
                one = [name::choose(name, versions, typed).map_err(crate::error::usage)?.clone()];
                &one[..]
            }
            None => &versions[..],
        };
        for version in chosen {
            let label = format!("{name}@{version}");
            let checked = match open(&store, name, Some(&version.to_string())).await {
                Ok(opened) => check(&store, &opened, read, &mut known).await?,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                    amiss = true;
                    print::line(&format!("{label}: {}", one_line(&error_text(&error))))?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            amiss |= !checked.wrong.is_empty();
            damaged |= checked.wrong.iter().any(|(_, _, _, wrong)| matches!(wrong, Defect::Content));
            print::text(&lines(&label, &checked))?;
        }
    }
    if damaged {
        tracing::warn!(
            "no push replaces what has its size: delete what has other content (haul deletefile), then push a directory that has it with --verify"
        );
    }
    Ok(if amiss { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}

fn lines(label: &str, checked: &Checked) -> String {
    let mut text = String::new();
    for (address, path, users, wrong) in &checked.wrong {
        let why = match wrong {
            Defect::Missing => "is missing".to_string(),
            Defect::Size(size) => format!("has {size} bytes, which isn't its size"),
            Defect::Content => "has other content than its name says".to_string(),
        };
        let more = if *users > 1 { format!(" and {} more", users - 1) } else { String::new() };
        text.push_str(&format!("{label}: {}{more}: {} {why}\n", one_line(path), address.key()));
    }
    let verdict = match checked.wrong.len() {
        0 => format!("all {} there", checked.right),
        n => format!("{n} of {} missing or wrong", checked.right + n as u64),
    };
    text + &format!("{label}: {verdict}\n")
}
