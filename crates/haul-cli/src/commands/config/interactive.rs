//! The menu of `haul config`: new, delete, rename, copy, password, quit.

use super::edit::{ALIAS, check_kind, check_name, put};
use crate::{
    config::{Config, crypt::Secret, obscure},
    context::Context,
    print,
};
use anyhow::{Context as _, Result, bail};
use haul_store::{OptionKind, OptionSpec, registry};
use std::io::Write as _;

/// Shows the menu until the user quits.
pub fn menu(context: &Context) -> Result<()> {
    let mut config = context.load_config()?;
    let confirm = Confirm { auto: context.flags.config.auto_confirm };
    loop {
        list(&config)?;
        let some = !config.remotes().is_empty();
        print::line("n) New remote")?;
        if some {
            print::line("d) Delete remote\nr) Rename remote\nc) Copy remote")?;
        }
        print::line("s) Set configuration password\nq) Quit config")?;
        match ask("Choose")?.as_str() {
            "n" => new(&mut config, confirm)?,
            "d" if some => delete(&mut config, confirm)?,
            "r" if some => rename(&mut config)?,
            "c" if some => copy(&mut config)?,
            "s" => password(&mut config, confirm)?,
            "q" => return Ok(()),
            other => print::line(&format!("{other:?} isn't in the menu."))?,
        }
    }
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

fn new(config: &mut Config, confirm: Confirm) -> Result<()> {
    let name = new_name(config)?;
    let kind = kind()?;
    let mut values = vec![("type".to_string(), kind.clone())];
    if kind == ALIAS {
        values.push(("remote".into(), ask("remote or path that it stands for")?));
    }
    let options = registry::kind(&kind).map(|k| k.options).unwrap_or_default();
    for option in options.iter().filter(|o| !o.advanced) {
        values.extend(question(option)?.map(|v| (option.name.to_string(), v)));
    }
    if options.iter().any(|o| o.advanced) && confirm.yes("Edit advanced options?", false)? {
        for option in options.iter().filter(|o| o.advanced) {
            values.extend(question(option)?.map(|v| (option.name.to_string(), v)));
        }
    }
    print::line(&format!("\n[{name}]"))?;
    for (key, value) in &values {
        let secret = options.iter().any(|o| o.name == key && (o.secret || o.kind == OptionKind::Obscured));
        print::line(&format!("{key} = {}", if secret { "***" } else { value }))?;
    }
    if confirm.yes("Keep this remote?", true)? {
        let (_, path) =
            config.change(&name, |ini| values.iter().try_for_each(|(key, value)| put(ini, &name, key, value)))?;
        print::line(&format!("Written to {}.\n", path.display()))?;
    }
    Ok(())
}

fn kind() -> Result<String> {
    let mut kinds: Vec<(&str, &str)> = registry::kinds().iter().map(|k| (k.name, k.description)).collect();
    kinds.push((ALIAS, "Another name for a path on a remote"));
    for (at, (name, description)) in kinds.iter().enumerate() {
        print::line(&format!("{:2} / {description}\n   \\ ({name})", at + 1))?;
    }
    loop {
        let answer = ask("type")?;
        let by_number = answer.parse::<usize>().ok().and_then(|n| kinds.get(n.checked_sub(1)?));
        let name = by_number.map_or(answer.as_str(), |(name, _)| name);
        match check_kind(name) {
            Ok(()) => return Ok(name.into()),
            Err(e) => print::line(&format!("{e}."))?,
        }
    }
}

/// Asks for an option; nothing keeps the default.
fn question(option: &OptionSpec) -> Result<Option<String>> {
    print::line(&format!("\n{}\n{}", option.name, option.help))?;
    for (at, (value, help)) in option.examples.iter().enumerate() {
        print::line(&format!("{:2} / {help}\n   \\ ({value})", at + 1))?;
    }
    if option.kind == OptionKind::Obscured {
        let secret = hidden(option.name)?;
        return if secret.is_empty() { Ok(None) } else { obscure::obscure(&secret).map(Some) };
    }
    let answer = match (option.secret, option.default) {
        (true, _) => hidden(option.name)?,
        (_, "") => ask(option.name)?,
        (_, default) => ask(&format!("{} (default {default})", option.name))?,
    };
    // An example's number stands for it, but a number may be the value itself.
    let by_number = match option.kind {
        OptionKind::Text => answer.parse::<usize>().ok().and_then(|n| option.examples.get(n.checked_sub(1)?)),
        _ => None,
    };
    let value = by_number.map_or(answer.as_str(), |(value, _)| value);
    Ok((!value.is_empty()).then(|| value.to_string()))
}

/// Asks without showing what is typed, where there is a terminal.
fn hidden(name: &str) -> Result<String> {
    use std::io::IsTerminal as _;
    if !std::io::stdin().is_terminal() {
        return ask(name);
    }
    Ok(rpassword::prompt_password(format!("{name} (not shown)> "))?)
}

fn delete(config: &mut Config, confirm: Confirm) -> Result<()> {
    let Some(name) = choose(config)? else { return Ok(()) };
    if confirm.yes(&format!("Delete {name}?"), false)? {
        config.change(&name, |ini| Ok(ini.remove_section(&name)))?;
    }
    Ok(())
}

fn rename(config: &mut Config) -> Result<()> {
    let Some(name) = choose(config)? else { return Ok(()) };
    let to = new_name(config)?;
    config.change(&name, |ini| Ok(ini.rename_section(&name, &to)))?;
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
    let first = hidden("New password")?;
    if first != hidden("Again")? {
        return print::line("They differ: nothing is changed.");
    }
    match Secret::new(&first) {
        Ok(secret) => config.set_secret(Some(secret)).map(|_| ()),
        Err(e) => print::line(&format!("{e}: nothing is changed.")),
    }
}
