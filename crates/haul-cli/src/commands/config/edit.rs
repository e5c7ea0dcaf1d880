//! The commands that change the configuration.

use super::{
    login::{self, Answers, Machine},
    put, questions,
    show::{self, Secrets, known, option},
};
use crate::{context::Context, error::usage, print, prompt};
use anyhow::{Result, anyhow, bail};
use haul_core::text::nearest;
use haul_oauth::setup::RemoteOptions;
use haul_remotes::{
    Lacking,
    config::{Config, crypt::Secret, obscure},
    is_name, lacking, registry,
};
use haul_store::OptionKind;
use std::path::Path;

/// The new remote.
#[derive(clap::Args, Debug)]
pub struct CreateArgs {
    /// Its name
    #[arg(value_name = "REMOTE")]
    name: String,
    /// Type of the remote: see haul config providers
    kind: String,
    /// Options of the remote: key=value, or key value
    options: Vec<String>,
    #[command(flatten)]
    how: EditOptions,
    #[command(flatten)]
    machine: Machine,
}

/// A remote and what to change.
#[derive(clap::Args, Debug)]
pub struct UpdateArgs {
    /// The remote
    #[arg(value_name = "REMOTE")]
    name: String,
    /// Options: key=value, or key value
    #[arg(required_unless_present_any = ["continue", "non_interactive"])]
    options: Vec<String>,
    #[command(flatten)]
    how: EditOptions,
    #[command(flatten)]
    machine: Machine,
}

/// A remote and what to take away.
#[derive(clap::Args, Debug)]
pub struct UnsetArgs {
    /// The remote
    #[arg(value_name = "REMOTE")]
    name: String,
    /// Names of options
    #[arg(required = true)]
    keys: Vec<String>,
}

/// A remote.
#[derive(clap::Args, Debug)]
pub struct NameArgs {
    /// The remote
    #[arg(value_name = "REMOTE")]
    name: String,
}

/// How passwords are taken, and what is printed.
#[derive(clap::Args, Clone, Copy, Debug)]
struct EditOptions {
    /// Obscure passwords even if they look obscured
    #[arg(long, conflicts_with = "no_obscure")]
    obscure: bool,
    /// Don't obscure passwords
    #[arg(long)]
    no_obscure: bool,
    /// Print nothing
    #[arg(long)]
    no_output: bool,
}

/// The type that stands for a path on another remote.
pub const ALIAS: &str = "alias";

/// Creates a remote, or overwrites it; logs in where that is needed.
pub async fn create(args: CreateArgs, context: &Context) -> Result<()> {
    let name = args.name.strip_suffix(':').unwrap_or(&args.name);
    check_name(name)?;
    check_kind(&args.kind)?;
    let (given, pairs) = apart(&args.kind, &args.options)?;
    let values = values(&args.kind, &pairs, args.how)?;
    let mut config = context.session.load_config()?;
    let (_, path) = config.change(name, |ini| {
        ini.remove_section(name);
        put(ini, name, "type", &args.kind)?;
        values.iter().try_for_each(|(key, value)| put(ini, name, key, value))
    })?;
    if log_in(&mut config, name, &given, (&args.machine, args.how), context).await? {
        show_changed(&config, name, &path, args.how)?;
    }
    Ok(())
}

/// Changes options of a remote; goes on with a log-in.
pub async fn update(args: UpdateArgs, context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    let name = known(&config, &args.name)?;
    let kind = config.get(name, "type").unwrap_or_default();
    let (given, pairs) = apart(&kind, &args.options)?;
    let values = values(&kind, &pairs, args.how)?;
    let (_, path) = config.change(name, |ini| values.iter().try_for_each(|(key, value)| put(ini, name, key, value)))?;
    if args.machine.is_used() && !log_in(&mut config, name, &given, (&args.machine, args.how), context).await? {
        return Ok(());
    }
    show_changed(&config, name, &path, args.how)
}

/// Splits the words into options, and answers to questions that aren't kept (`config_is_local=false`).
fn apart(kind: &str, words: &[String]) -> Result<(RemoteOptions, Vec<(String, String)>)> {
    // One option of Box's begins like an answer.
    let is_answer = |key: &str| key.starts_with("config_") && option(kind, key).is_none();
    let (answers, pairs): (Vec<_>, Vec<_>) = pairs(words)?.into_iter().partition(|(key, _)| is_answer(key));
    Ok((answers.into_iter().collect(), pairs))
}

/// Logs in to a remote that was just written, where people log in to such; false when a program must answer more first.
async fn log_in(
    config: &mut Config,
    name: &str,
    given: &RemoteOptions,
    (machine, how): (&Machine, EditOptions),
    context: &Context,
) -> Result<bool> {
    let mut machine = machine.clone();
    if machine.is_used() {
        match asked_all(config, name, &machine, how)? {
            Some(true) => return Ok(false),
            Some(false) => machine = machine.log_in(),
            None => {}
        }
    }
    let machine = &machine;
    let Some(provider) = registry::login(&config.get(name, "type").unwrap_or_default()) else {
        if machine.is_used() {
            login::no_more()?;
        }
        return Ok(!machine.is_used());
    };
    let options = login::options_of(config, name);
    let keep = &mut |set: &RemoteOptions| login::kept(config, name, set);
    let question = if machine.is_used() && machine.begins() && has_keys(&options) {
        None
    } else if machine.is_used() {
        login::answered(provider, &options, given, context, machine, keep).await?
    } else if has_keys(&options) || given.is_empty() && options.get("token").is_some_and(|token| !token.is_empty()) {
        return Ok(true);
    } else {
        login::dialogue(provider, &options, Answers { given, defaults: true }, context, keep).await?;
        None
    };
    match question {
        Some(question) => print::line(&show::pretty(&question)?)?,
        None if machine.is_used() => login::no_more()?,
        None => {}
    }
    Ok(!machine.is_used())
}

/// Asks a program for the next option, where it is to be asked for all: true when one was asked for, false when there are no more.
fn asked_all(config: &mut Config, name: &str, machine: &Machine, how: EditOptions) -> Result<Option<bool>> {
    let kind = config.get(name, "type").unwrap_or_default();
    if registry::kind(&kind).is_err() {
        return Ok(None);
    }
    let Some(next) = questions::next(&kind, machine)? else { return Ok(None) };
    if let Some((key, value)) = next.set {
        let value = checked(&kind, key, &value, how)?;
        config.change(name, |ini| put(ini, name, key, &value))?;
    }
    match next.ask {
        Some(question) => print::line(&show::pretty(&question)?).map(|()| Some(true)),
        None => Ok(Some(false)),
    }
}

/// Options by which a remote needs no person to log in.
pub fn has_keys(options: &RemoteOptions) -> bool {
    const KEYS: [&str; 7] = [
        "service_account_file",
        "service_account_credentials",
        "access_token",
        "box_config_file",
        "config_credentials",
        "env_auth",
        "anonymous",
    ];
    KEYS.iter().any(|name| options.get(*name).is_some_and(|value| !value.is_empty() && value != "false"))
}

/// Sets passwords of a remote, obscured whatever they look like.
pub async fn password(mut args: UpdateArgs, context: &Context) -> Result<()> {
    args.how.obscure = !args.how.no_obscure;
    let config = context.session.load_config()?;
    let name = known(&config, &args.name)?;
    let kind = config.get(name, "type").unwrap_or_default();
    for (key, _) in pairs(&args.options)? {
        if registry::kind(&kind).is_ok() && option(&kind, &key).is_none_or(|o| o.kind != OptionKind::Obscured) {
            bail!("{key:?} of {name} isn't a password that is kept obscured: set it with haul config update");
        }
    }
    update(args, context).await
}

/// Takes options away.
pub fn unset(args: UnsetArgs, context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    let name = known(&config, &args.name)?;
    let (_, path) = config.change(name, |ini| {
        args.keys.iter().for_each(|key| {
            ini.remove(name, key);
        });
        anyhow::Ok(())
    })?;
    show_changed(&config, name, &path, EditOptions { obscure: false, no_obscure: false, no_output: false })
}

/// Deletes a remote.
pub fn delete(args: NameArgs, context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    let name = known(&config, &args.name)?;
    let (_, path) = config.change(name, |ini| anyhow::Ok(ini.remove_section(name)))?;
    warn_of_other_file(&config, &path);
    Ok(())
}

/// Creates the file if it isn't there.
pub fn touch(context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    if config.file().is_some_and(|f| f.exists) {
        return Ok(());
    }
    config.set_secret(None)?;
    Ok(())
}

/// Encrypts the file, with `--password-command`, the environment or a question.
pub fn encrypt(context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    let secret = new_secret(&config)?;
    config.set_secret(Some(secret))?;
    Ok(())
}

/// Decrypts the file.
pub fn decrypt(context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    config.set_secret(None)?;
    Ok(())
}

/// Says whether the file is encrypted; that its password fits, loading it has proved.
pub fn check(context: &Context) -> Result<()> {
    let config = context.session.load_config()?;
    match config.file() {
        Some(file) if file.secret.is_some() => Ok(()),
        Some(file) => Err(usage(format!("config file {} isn't encrypted", file.path.display()))),
        None => Err(usage("no config file is in use")),
    }
}

fn new_secret(config: &Config) -> Result<Secret> {
    if let Some(given) = config.password().without_asking()? {
        return Ok(Secret::new(&given)?);
    }
    loop {
        let first = prompt::password("New password: ").map_err(|_| {
            anyhow!("there is no terminal to ask for a password: set HAUL_CONFIG_PASS or --password-command")
        })?;
        let again = prompt::password("Again: ")?;
        match Secret::new(&first) {
            Ok(secret) if first == again => return Ok(secret),
            Ok(_) => eprintln!("They differ, try again."),
            Err(e) => eprintln!("{e}, try again."),
        }
    }
}

/// Can this be a remote's name?
pub fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    Err(usage(format!(
        "{name:?} can't be a remote's name: use letters, digits, _ - . + @ and space, not - or space at the ends"
    )))
}

/// Does haul have this type?
pub fn check_kind(kind: &str) -> Result<()> {
    let mut names: Vec<&str> = registry::kinds().iter().map(|k| k.name).collect();
    names.push(ALIAS);
    if names.contains(&kind) {
        return Ok(());
    }
    Err(usage(format!("unknown type of store {kind:?}; haul has {}", names.join(", "))))
}

/// Reads `key=value` and `key value`.
fn pairs(words: &[String]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((key, value)) => pairs.push((key.into(), value.into())),
            None => {
                let value = words.next().ok_or_else(|| usage(format!("option {word:?} has no value")))?;
                pairs.push((word.clone(), value.clone()));
            }
        }
    }
    Ok(pairs)
}

fn values(kind: &str, pairs: &[(String, String)], how: EditOptions) -> Result<Vec<(String, String)>> {
    pairs.iter().map(|(key, value)| Ok((key.clone(), checked(kind, key, value, how)?))).collect()
}

fn checked(kind: &str, key: &str, value: &str, how: EditOptions) -> Result<String> {
    let Some(option) = option(kind, key) else {
        warn_unknown(kind, key, value);
        return Ok(value.into());
    };
    if option.kind != OptionKind::Obscured || value.is_empty() || how.no_obscure {
        return Ok(value.into());
    }
    // A value that can be revealed is obscured already; --obscure says it isn't.
    match how.obscure || obscure::reveal(value).is_err() {
        true => Ok(obscure::obscure(value)?),
        false => Ok(value.into()),
    }
}

fn warn_unknown(kind: &str, key: &str, value: &str) {
    if matches!(key, "type" | "description") || (kind == ALIAS && key == "remote") {
        return;
    }
    let Ok(known) = registry::kind(kind) else { return };
    match lacking(kind, key, value) {
        Lacking::Nothing => return,
        Lacking::Refused(advice) => {
            tracing::warn!("haul can't do what {key} asks for, and won't open this remote: {advice}");
            return;
        }
        Lacking::Told => {}
    }
    let near = nearest(key, known.options.iter().map(|o| o.name));
    let near = near.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default();
    tracing::warn!("a store of type {kind} has no option {key:?}{near}: kept in the file, without effect in haul");
}

fn show_changed(config: &Config, name: &str, path: &Path, how: EditOptions) -> Result<()> {
    warn_of_other_file(config, path);
    if how.no_output {
        return Ok(());
    }
    // Nobody asked to see secrets, and a terminal or a log keeps what it shows.
    print::text(&show::section(config, name, Secrets::Redacted))
}

/// Says so when another file than haul's own was changed.
fn warn_of_other_file(config: &Config, path: &Path) {
    let first = config.sources().first().is_some_and(|s| s.path == path);
    if !first {
        tracing::warn!("changed {}, where this remote is defined", path.display());
    }
}
