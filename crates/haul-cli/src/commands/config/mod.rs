//! `haul config`: shows and changes the configuration.

mod edit;
mod interactive;
pub mod login;
mod questions;
mod show;

use crate::{context::Context, error::CommandResult};
use anyhow::{Result, anyhow};
use haul_remotes::config::file::Ini;

/// What to do with the configuration; without a command a menu asks.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(clap::Subcommand, Debug)]
enum Sub {
    /// Create a remote: NAME TYPE key=value…
    Create(edit::CreateArgs),
    /// Change options of a remote: NAME key=value…
    Update(edit::UpdateArgs),
    /// Remove options from a remote: NAME key…
    Unset(edit::UnsetArgs),
    /// Set a password of a remote: NAME key password…
    Password(edit::UpdateArgs),
    /// Delete a remote
    Delete(edit::NameArgs),
    /// Show the configuration, or one remote
    Show(show::NameArgs),
    /// Show the configuration, or one remote, without its secrets
    Redacted(show::NameArgs),
    /// Show the configuration as JSON
    Dump,
    /// Show where the config file is
    File,
    /// Show all files and directories in use
    Paths,
    /// Show the types of stores and their options as JSON
    Providers,
    /// Show a remote as a connection string that needs no configuration
    String(show::StringArgs),
    /// Create the config file if it doesn't exist
    Touch,
    /// Encrypt the config file, decrypt it, or check its password
    Encryption(EncryptionArgs),
    /// Log in to a service again
    Reconnect(login::RemoteArgs),
    /// Show the account that a remote uses
    Userinfo(login::UserArgs),
    /// Forget the token of a remote
    Disconnect(login::RemoteArgs),
    /// Create and change remotes in a menu
    Edit,
}

/// What to do about encryption.
#[derive(clap::Args, Debug)]
struct EncryptionArgs {
    #[command(subcommand)]
    command: EncryptionSub,
}

#[derive(clap::Subcommand, Debug)]
enum EncryptionSub {
    /// Encrypt the config file, or change its password
    Set,
    /// Decrypt the config file
    Remove,
    /// Check that the config file is encrypted and that the password is right
    Check,
}

/// Runs it.
pub async fn run(args: Args, context: &Context) -> Result<CommandResult> {
    match args.command {
        None | Some(Sub::Edit) => interactive::menu(context).await?,
        Some(Sub::Create(args)) => edit::create(args, context).await?,
        Some(Sub::Update(args)) => edit::update(args, context).await?,
        Some(Sub::Reconnect(args)) => return login::reconnect(args, context).await,
        Some(Sub::Userinfo(args)) => return login::userinfo(args, context).await,
        Some(Sub::Disconnect(args)) => return login::disconnect(args, context).await,
        Some(Sub::Unset(args)) => edit::unset(args, context)?,
        Some(Sub::Password(args)) => edit::password(args, context).await?,
        Some(Sub::Delete(args)) => edit::delete(args, context)?,
        Some(Sub::Show(args)) => show::show(args, context, show::Secrets::Plain)?,
        Some(Sub::Redacted(args)) => show::show(args, context, show::Secrets::Redacted)?,
        Some(Sub::Dump) => show::dump(context)?,
        Some(Sub::File) => show::file(context)?,
        Some(Sub::Paths) => show::paths(context)?,
        Some(Sub::Providers) => show::providers()?,
        Some(Sub::String(args)) => show::string(args, context)?,
        Some(Sub::Touch) => edit::touch(context)?,
        Some(Sub::Encryption(args)) => match args.command {
            EncryptionSub::Set => edit::encrypt(context)?,
            EncryptionSub::Remove => edit::decrypt(context)?,
            EncryptionSub::Check => edit::check(context)?,
        },
    }
    Ok(CommandResult::Done)
}

/// Sets one value.
fn put(ini: &mut Ini, name: &str, key: &str, value: &str) -> Result<()> {
    ini.set(name, key, value).map_err(|e| anyhow!("option {key}: {e}"))
}
