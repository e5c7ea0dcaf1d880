//! `authorize`: log in to a service in this machine's browser, for a remote of another machine.

use super::config::login::{self, TerminalLogin};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    print,
};
use anyhow::Result;
use haul_oauth::{decode, encode, setup};

/// Log in to a service here, for a machine without a browser
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Type of the remote, such as gcs
    #[arg(value_name = "TYPE")]
    kind: String,
    /// The word that haul config or rclone config printed; or a client id and its secret
    #[arg(value_name = "WORD", num_args = 0..=2)]
    words: Vec<String>,
    /// Don't open a browser; print the address to open
    #[arg(long)]
    auth_no_open_browser: bool,
}

/// Runs it.
pub async fn run(args: Args, context: &Context) -> Result<CommandResult> {
    let provider = login::provider(&args.kind)?;
    let mut options = setup::RemoteOptions::new();
    match &args.words[..] {
        [word] => options = decode(word)?,
        [id, secret] => {
            options.insert("client_id".into(), id.clone());
            options.insert("client_secret".into(), secret.clone());
        }
        _ => {}
    }
    if options.get("client_id").is_none_or(String::is_empty) {
        let why = format!(
            "haul has no client id at {}: make your own ({}), then haul authorize {} ID SECRET; or use rclone authorize {2}",
            provider.title, provider.own_id, provider.kind
        );
        return Err(usage(why));
    }
    let show = TerminalLogin { opens: !args.auth_no_open_browser, advises: false };
    let done = setup::step(provider, &options, &login::client(context)?, &show, setup::HERE).await?;
    let (setup::NextStep::Done(changed) | setup::NextStep::Set(changed, _)) = done else {
        anyhow::bail!("the log-in asks where it should be done")
    };
    let text = match args.words.len() {
        1 => encode(&changed),
        _ => changed.get("token").cloned().unwrap_or_default(),
    };
    print::line(&format!("Paste the following into your remote machine --->\n{text}\n<---End paste"))?;
    Ok(CommandResult::Done)
}
