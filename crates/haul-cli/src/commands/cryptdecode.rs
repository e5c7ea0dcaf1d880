//! `cryptdecode`: the plain names behind encrypted ones, and the reverse.

use crate::{
    context::Context,
    error::{CommandResult, code},
    show::out::{Output, quiet},
};
use anyhow::{Result, bail};
use haul_core::{ErrorKind, Key};
use std::{ffi::OsString, os::unix::ffi::OsStrExt as _};

/// Arguments of `cryptdecode`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The encrypted remote
    #[arg(value_name = "REMOTE:")]
    remote: OsString,
    /// Names, with their parent directories
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// Encrypt names instead
    #[arg(long)]
    reverse: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(names(args, ctx).await)
}

async fn names(args: Args, ctx: &Context) -> Result<CommandResult> {
    let store = ctx.open(&args.remote)?;
    let Some(encrypted) = store.encrypted() else { bail!("{} has no encrypted names", store.locator()) };
    let (mut out, mut outcome) = (Output::stdout(), CommandResult::Done);
    for name in &args.names {
        let key = Key::new(name.as_bytes());
        let answer = match if args.reverse { encrypted.hidden(&key) } else { encrypted.plain(&key) } {
            Ok(key) => key.as_bytes().to_vec(),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                outcome = CommandResult::Exit(code::OTHER);
                b"Failed to decrypt".to_vec()
            }
            Err(error) => return Err(error.into()),
        };
        out.bytes(&[name.as_bytes(), b" \t ", &answer, b"\n"].concat())?;
    }
    out.flush()?;
    Ok(outcome)
}
