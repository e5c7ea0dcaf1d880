//! The menu of `haul config`: new, edit, delete, rename, copy, password, quit.

use super::{
    edit::{ALIAS, check_kind, check_name, has_keys},
    login, put,
};
use crate::{context::Context, error::verdict, print, prompt};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use haul_core::{
    Error, ErrorKind, Listed,
    text::{boolean, wrap},
};
use haul_oauth::setup;
use haul_remotes::{
    config::{Config, crypt::Secret, obscure},
    registry,
};
use haul_store::{ListRequest, OptionKind, OptionSpec};
use std::{io::Write as _, time::Duration};

/// Options that a first connection doesn't need: asked for among the advanced ones.
const LATER: [&str; 5] = ["location_constraint", "acl", "server_side_encryption", "sse_kms_key_id", "storage_class"];
/// Secrets that are shown as they are typed: without the other half they are worth nothing.
const SHOWN: [&str; 1] = ["access_key_id"];
/// A connection that takes longer doesn't work, for a person who waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// Shows the menu until the user quits.
pub async fn menu(context: &Context) -> Result<()> {
    let mut config = context.session.load_config()?;
    let confirm = Confirm { auto: context.flags.config.auto_confirm };
    let width = context.screen.size().0;
    loop {
        list(&config)?;
        let some = !config.remotes().is_empty();
        print::line("n) New remote")?;
        if some {
            print::line("e) Edit existing remote\nd) Delete remote\nr) Rename remote\nc) Copy remote")?;
        }
        print::line("s) Set configuration password\nq) Quit config")?;
        match ask("Choose")?.as_str() {
            "n" => {
                if let Some(name) = new(context, &mut config, confirm, width).await? {
                    try_out(context, &config, &name, width).await?;
                }
            }
            "e" if some => {
                if let Some(name) = edit(context, &mut config, confirm, width).await? {
                    try_out(context, &config, &name, width).await?;
                }
            }
            "d" if some => delete(&mut config, confirm)?,
            "r" if some => rename(&mut config)?,
            "c" if some => copy(&mut config)?,
            "s" => password(&mut config, confirm)?,
            "q" => return Ok(()),
            // The menu is shown again.
            "" => {}
            "?" => say(
                "Type the letter in front of what you want to do. A remote is a place that haul copies from or to.",
                width,
            )?,
            other => say(&format!("{other:?} isn't in the menu."), width)?,
        }
    }
}

/// Prints a text in lines that fit.
fn say(text: &str, width: usize) -> Result<()> {
    print::line(&wrap(text, width, ""))
}

fn list(config: &Config) -> Result<()> {
    let names = config.remotes();
    if names.is_empty() {
        return print::line("No remotes yet: make a new one.\n");
    }
    print::line("Current remotes:\n\nName                 Type\n====                 ====")?;
    for name in names {
        print::line(&format!("{name:<20} {}", config.get(name, "type").unwrap_or_default()))?;
    }
    print::line("")
}

/// Asks for a line; the end of the input quits with an error.
fn ask(question: &str) -> Result<String> {
    print::text(&format!("{question}> "))?;
    std::io::stdout().flush()?;
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).context("can't read the answer")? == 0 {
        bail!("the input ended before the configuration was done");
    }
    Ok(line.trim().to_string())
}

/// Asks yes-or-no questions.
#[derive(Clone, Copy)]
struct Confirm {
    /// Nothing is asked, the default holds (`--auto-confirm`).
    auto: bool,
}

impl Confirm {
    fn yes(self, question: &str, default: bool) -> Result<bool> {
        if self.auto {
            return Ok(default);
        }
        let shown = if default { "Y/n" } else { "y/N" };
        loop {
            match ask(&format!("{question} [{shown}]"))?.to_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => print::line("Answer y or n.")?,
            }
        }
    }
}

/// Asks for a name that no remote has.
fn new_name(config: &Config) -> Result<String> {
    loop {
        let name = ask("name")?;
        match check_name(&name) {
            Err(e) => print::line(&format!("{e}."))?,
            Ok(()) if config.source(&name).is_some() => print::line("There is a remote of this name already.")?,
            Ok(()) => return Ok(name),
        }
    }
}

/// Asks for one of the remotes, by name or number; nothing for none.
fn choose(config: &Config) -> Result<Option<String>> {
    let names: Vec<String> = config.remotes().into_iter().map(String::from).collect();
    for (at, name) in names.iter().enumerate() {
        print::line(&format!("{:2} > {name}", at + 1))?;
    }
    loop {
        let answer = ask("remote (empty for none)")?;
        if answer.is_empty() {
            return Ok(None);
        }
        let by_number = answer.parse::<usize>().ok().and_then(|n| names.get(n.checked_sub(1)?));
        match names.iter().find(|n| **n == answer).or(by_number) {
            Some(name) => return Ok(Some(name.clone())),
            None => print::line("No such remote.")?,
        }
    }
}

/// Makes a remote; gives its name if it was kept.
async fn new(context: &Context, config: &mut Config, confirm: Confirm, width: usize) -> Result<Option<String>> {
    let name = new_name(config)?;
    let kind = kind(width)?;
    let mut values = vec![("type".to_string(), kind.clone())];
    if kind == ALIAS {
        values.push(("remote".into(), ask("remote or path that it stands for")?));
    }
    questions(&kind, &mut values, confirm, width)?;
    log_in(context, &kind, &mut values, confirm, width).await?;
    keep(config, &name, &kind, values, confirm)
}

/// Asks for each option of a remote again; gives its name if the answers were kept.
async fn edit(context: &Context, config: &mut Config, confirm: Confirm, width: usize) -> Result<Option<String>> {
    let Some(name) = choose(config)? else { return Ok(None) };
    let mut values = config.options(&name);
    let kind = config.get(&name, "type").unwrap_or_default();
    print::line("Enter keeps a value, - removes it, ? explains.")?;
    if kind == ALIAS {
        let answer = ask("remote or path that it stands for")?;
        set(&mut values, "remote", Some(answer).filter(|answer| !answer.is_empty()).map(Answer::Value));
    }
    questions(&kind, &mut values, confirm, width)?;
    log_in(context, &kind, &mut values, confirm, width).await?;
    keep(config, &name, &kind, values, confirm)
}

/// Logs in, where people log in to remotes of this type.
async fn log_in(
    context: &Context,
    kind: &str,
    values: &mut Vec<(String, String)>,
    confirm: Confirm,
    width: usize,
) -> Result<()> {
    let options: setup::RemoteOptions = values.iter().cloned().collect();
    let Some(provider) = registry::login(kind).filter(|_| !has_keys(&options)) else { return Ok(()) };
    let given = setup::RemoteOptions::new();
    let answers = login::Answers { given: &given, defaults: confirm.auto };
    let keep = &mut |found: &setup::RemoteOptions| {
        found.iter().for_each(|(key, value)| set(values, key, Some(Answer::Value(value.clone()))));
        Ok(())
    };
    match login::dialogue(provider, &options, answers, context, keep).await {
        Ok(()) => {}
        // The rest of the answers is worth keeping.
        Err(error) => say(&format!("{}. Log in later with haul config reconnect.", verdict(&error).line), width)?,
    }
    Ok(())
}

/// Asks for the options of a type, those that few need only if that is wanted.
fn questions(kind: &str, values: &mut Vec<(String, String)>, confirm: Confirm, width: usize) -> Result<()> {
    let options = registry::kind(kind).map(|k| k.options).unwrap_or_default();
    let is_later = |option: &&OptionSpec| option.advanced || LATER.contains(&option.name);
    let has = |values: &[(String, String)], name: &str| values.iter().any(|(key, _)| key == name);
    for option in in_order(options.iter().filter(|option| !is_later(option)).collect()) {
        let has_keys = has(values, "access_key_id") || has(values, "secret_access_key");
        match option.name {
            // A secret without its key is none, and keys of the file count before those of the environment.
            "secret_access_key" if !has_keys => continue,
            "env_auth" if has_keys && !has(values, "env_auth") => continue,
            _ => ask_for(kind, option, values, width)?,
        }
    }
    if options.iter().any(|option| is_later(&option)) && confirm.yes("Edit advanced options?", false)? {
        for option in options.iter().filter(is_later) {
            ask_for(kind, option, values, width)?;
        }
    }
    Ok(())
}

/// Keys before `env_auth`, which is for users without keys.
fn in_order(mut options: Vec<&OptionSpec>) -> Vec<&OptionSpec> {
    let at = |options: &[&OptionSpec], name: &str| options.iter().position(|option| option.name == name);
    if let (Some(env), Some(secret)) = (at(&options, "env_auth"), at(&options, "secret_access_key"))
        && env < secret
    {
        options[env..=secret].rotate_left(1);
    }
    options
}

fn ask_for(kind: &str, option: &OptionSpec, values: &mut Vec<(String, String)>, width: usize) -> Result<()> {
    let now = values.iter().find(|(key, _)| key == option.name).map(|(_, value)| value.clone());
    // Data encrypted with a mistyped password is lost; any other typo shows at the first connection.
    let times = if kind == "crypt" { Times::Twice } else { Times::Once };
    let answer = question(option, now.as_deref(), width, times)?;
    set(values, option.name, answer);
    Ok(())
}

/// The answer to a question; no answer leaves the value as it is.
enum Answer {
    Value(String),
    Remove,
}

fn set(values: &mut Vec<(String, String)>, key: &str, answer: Option<Answer>) {
    let Some(answer) = answer else { return };
    let at = values.iter().position(|(name, _)| name == key);
    match (answer, at) {
        (Answer::Value(value), Some(at)) => values[at].1 = value,
        (Answer::Value(value), None) => values.push((key.into(), value)),
        (Answer::Remove, Some(at)) => drop(values.remove(at)),
        (Answer::Remove, None) => {}
    }
}

/// Shows a remote and writes it, if that is wanted; gives its name then.
fn keep(
    config: &mut Config,
    name: &str,
    kind: &str,
    values: Vec<(String, String)>,
    confirm: Confirm,
) -> Result<Option<String>> {
    let options = registry::kind(kind).map(|k| k.options).unwrap_or_default();
    print::line(&format!("\n[{name}]"))?;
    for (key, value) in &values {
        let secret = options.iter().any(|o| o.name == key && (o.secret || o.kind == OptionKind::Obscured));
        print::line(&format!("{key} = {}", if secret { "***" } else { value }))?;
    }
    if !confirm.yes("Keep this remote?", true)? {
        return Ok(None);
    }
    let gone: Vec<String> = config.options(name).into_iter().map(|(key, _)| key).collect();
    let (_, path) = config.change(name, |ini| {
        for key in gone.iter().filter(|key| values.iter().all(|(kept, _)| kept != *key)) {
            ini.remove(name, key);
        }
        values.iter().try_for_each(|(key, value)| put(ini, name, key, value))
    })?;
    print::line(&format!("Written to {}.\n", path.display()))?;
    Ok(Some(name.into()))
}

/// Lists a remote's root, and says what to type next.
async fn try_out(context: &Context, config: &Config, name: &str, width: usize) -> Result<()> {
    if config.file().is_some_and(|file| file.secret.is_some()) {
        // It would have to be read again, and its password asked for.
        return print::line(&format!("Next: haul lsd {name}:\n"));
    }
    print::line("Testing the connection …")?;
    // The file has just changed, so it is read afresh.
    let fresh = context.session.reread();
    let listed = async {
        let store = fresh.open(format!("{name}:"), &context.open_options())?;
        let request = ListRequest { limit: Some(1), ..ListRequest::default() };
        match store.list(request).next().await {
            Some(Listed::Failed { error, .. }) => Err(anyhow::Error::from(error)),
            _ => Ok(()),
        }
    };
    let is_missing = |error: &anyhow::Error| {
        error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::DirNotFound)
    };
    let is_denied = |error: &anyhow::Error| {
        error
            .downcast_ref::<Error>()
            .is_some_and(|error| error.kind() == ErrorKind::Denied && error.message().contains("AccessDenied"))
    };
    let outcome = match tokio::time::timeout(PATIENCE, listed).await {
        Ok(Ok(())) => format!("It works. Next: haul lsd {name}:"),
        Ok(Err(error)) if is_denied(&error) => {
            format!("The server answers, but doesn't list its buckets to these keys. Next: haul lsd {name}:BUCKET")
        }
        Ok(Err(error)) if is_missing(&error) => {
            format!(
                "It answers. Nothing is at its path yet: the first copy creates it. Next: haul copy DIRECTORY {name}:"
            )
        }
        Ok(Err(error)) => format!("It doesn't work yet: {}. Type e to edit it.", verdict(&error).line),
        Err(_) => "It doesn't work yet: no answer within 15 seconds. Type e to edit it.".into(),
    };
    say(&outcome, width)?;
    print::line("")
}

fn kind(width: usize) -> Result<String> {
    let mut kinds: Vec<(&str, &str)> = registry::kinds().iter().map(|k| (k.name, k.description)).collect();
    kinds.push((ALIAS, "Another name for a path on a remote"));
    for (at, (name, description)) in kinds.iter().enumerate() {
        print::line(&format!(
            "{:2} / {}\n   \\ ({name})",
            at + 1,
            wrap(description, width.saturating_sub(5), "     ")
        ))?;
    }
    loop {
        let answer = ask("type")?;
        if answer == "?" {
            say("Type one of these names, or its number. An S3 service of any make is s3.", width)?;
            continue;
        }
        let by_number = answer.parse::<usize>().ok().and_then(|n| kinds.get(n.checked_sub(1)?));
        let name = by_number.map_or(answer.as_str(), |(name, _)| name);
        match check_kind(name) {
            Ok(()) => return Ok(name.into()),
            Err(e) => say(&format!("{e}."), width)?,
        }
    }
}

/// Asks for an option; nothing keeps the default, or the value that it has `now`.
fn question(option: &OptionSpec, now: Option<&str>, width: usize, times: Times) -> Result<Option<Answer>> {
    let explain = || -> Result<()> {
        print::line(&format!("\n{}\n{}", option.name, wrap(option.help, width, "")))?;
        for (at, (value, help)) in option.examples.iter().enumerate() {
            print::line(&format!("{:2} / {}\n   \\ ({value})", at + 1, wrap(help, width.saturating_sub(5), "     ")))?;
        }
        Ok(())
    };
    explain()?;
    let is_hidden = (option.secret || option.kind == OptionKind::Obscured) && !SHOWN.contains(&option.name);
    let answer = loop {
        let answer = match (is_hidden, now, option.default) {
            (true, None, _) => hidden(option.name, times)?,
            (true, Some(_), _) => hidden(&format!("{} (Enter keeps it)", option.name), times)?,
            (_, Some(now), _) => ask(&format!("{} (now {now})", option.name))?,
            (_, None, "") => ask(option.name)?,
            (_, None, default) => ask(&format!("{} (default {default})", option.name))?,
        };
        match (answer.as_str(), misfit(option, &answer)) {
            ("?", why) => {
                explain()?;
                why.map_or(Ok(()), |why| say(why, width))?;
            }
            (_, Some(why)) if !(answer.is_empty() || now.is_some() && answer == "-") => say(why, width)?,
            _ => break answer,
        }
    };
    if answer.is_empty() {
        return Ok(None);
    }
    if now.is_some() && answer == "-" {
        return Ok(Some(Answer::Remove));
    }
    if option.kind == OptionKind::Obscured {
        return Ok(Some(Answer::Value(obscure::obscure(&answer)?)));
    }
    // An example's number stands for it, but a number may be the value itself.
    let by_number = match option.kind {
        OptionKind::Text => answer.parse::<usize>().ok().and_then(|n| option.examples.get(n.checked_sub(1)?)),
        _ => None,
    };
    Ok(Some(Answer::Value(by_number.map_or(answer, |(value, _)| (*value).to_owned()))))
}

/// Why an answer can't be the value of an option.
fn misfit(option: &OptionSpec, answer: &str) -> Option<&'static str> {
    match option.kind {
        OptionKind::Bool if boolean(answer).is_none() => Some("Type true or false."),
        _ if option.name == "region" && answer.contains("://") => {
            Some("A region is a name, such as us-east-1. The address is asked for next, as endpoint.")
        }
        _ => None,
    }
}

/// How often something is typed that isn't shown.
#[derive(Clone, Copy, PartialEq)]
enum Times {
    Once,
    /// Since nobody sees a slip.
    Twice,
}

/// Asks without showing what is typed, where there is a terminal.
fn hidden(name: &str, times: Times) -> Result<String> {
    use std::io::IsTerminal as _;
    if !std::io::stdin().is_terminal() {
        return ask(name);
    }
    loop {
        let typed = prompt::password(&format!("{name} (not shown)> "))?;
        let is_done = times == Times::Once || matches!(&*typed, "" | "-" | "?");
        if is_done || prompt::password("the same again> ")? == typed {
            return Ok(typed);
        }
        print::line("The two differ.")?;
    }
}

fn delete(config: &mut Config, confirm: Confirm) -> Result<()> {
    let Some(name) = choose(config)? else { return Ok(()) };
    if confirm.yes(&format!("Delete {name}?"), false)? {
        config.change(&name, |ini| anyhow::Ok(ini.remove_section(&name)))?;
    }
    Ok(())
}

fn rename(config: &mut Config) -> Result<()> {
    let Some(name) = choose(config)? else { return Ok(()) };
    let to = new_name(config)?;
    config.change(&name, |ini| anyhow::Ok(ini.rename_section(&name, &to)))?;
    Ok(())
}

fn copy(config: &mut Config) -> Result<()> {
    let Some(name) = choose(config)? else { return Ok(()) };
    let to = new_name(config)?;
    let options = config.options(&name);
    config.change(&name, |ini| options.iter().try_for_each(|(key, value)| put(ini, &to, key, value)))?;
    Ok(())
}

fn password(config: &mut Config, confirm: Confirm) -> Result<()> {
    let encrypted = config.file().is_some_and(|f| f.secret.is_some());
    print::line(if encrypted { "The configuration is encrypted." } else { "The configuration isn't encrypted." })?;
    if encrypted && confirm.yes("Remove the password?", false)? {
        config.set_secret(None)?;
        return Ok(());
    }
    if !confirm.yes("Set a password?", !encrypted)? {
        return Ok(());
    }
    match Secret::new(&hidden("New password", Times::Twice)?) {
        Ok(secret) => {
            config.set_secret(Some(secret))?;
            Ok(())
        }
        Err(e) => print::line(&format!("{e}: nothing is changed.")),
    }
}
