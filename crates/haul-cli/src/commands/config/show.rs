//! The commands that show the configuration.

use crate::{context::Context, error::usage, print};
use anyhow::{Result, bail};
use haul_core::text::nearest;
use haul_remotes::{
    config::{Config, ConfigPaths},
    registry,
    secrets::{holds_login, left_out},
};
use haul_store::{OptionKind, OptionSpec};
use serde_json::{Map, Value, json};

/// Which remote.
#[derive(clap::Args, Debug)]
pub struct NameArgs {
    /// The remote [default: all]
    #[arg(value_name = "REMOTE")]
    name: Option<String>,
}

/// Which remote.
#[derive(clap::Args, Debug)]
pub struct StringArgs {
    /// The remote, with or without a path: minio:bucket
    remote: String,
}

/// How secrets are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// As the file has them.
    Plain,
    /// As `XXX`.
    Redacted,
}

/// The option of this name of a type, where haul knows both.
pub fn option(kind: &str, name: &str) -> Option<&'static OptionSpec> {
    registry::kind(kind).ok()?.options.iter().find(|o| o.name == name)
}

/// One remote in the file's form.
pub fn section(config: &Config, name: &str, secrets: Secrets) -> String {
    let kind = config.get(name, "type").unwrap_or_default();
    let mut text = format!("[{name}]\n");
    for (key, value) in config.options(name) {
        // Before the @ of an address may stand a password.
        let secret = is_secret(&kind, &key) || value.contains('@') || may_hold_secret(&key, &value);
        let hidden = secrets == Secrets::Redacted && !value.is_empty() && secret;
        text.push_str(&format!("{key} = {}\n", if hidden { "XXX" } else { &value }));
    }
    text
}

/// A command or an address that has a password, or a remote that holds one.
fn may_hold_secret(key: &str, value: &str) -> bool {
    let address = value.contains("://") && value.contains('?');
    key.ends_with("_command") || address || holds_login(key, value) || left_out(value.as_bytes()).is_some()
}

/// Of types that haul doesn't have, only what surely holds no secret is shown.
fn is_secret(kind: &str, key: &str) -> bool {
    if matches!(key, "type" | "provider" | "description" | "region" | "remote") {
        return false;
    }
    match registry::kind(kind) {
        Ok(_) => option(kind, key).is_none_or(|o| o.secret || o.kind == OptionKind::Obscured),
        Err(_) => true,
    }
}

/// Prints one remote or all.
pub fn show(args: NameArgs, context: &Context, secrets: Secrets) -> Result<()> {
    let config = context.session.config()?;
    let text = match &args.name {
        Some(name) => section(config, known(config, name)?, secrets),
        None => config.remotes().iter().map(|n| section(config, n, secrets)).collect::<Vec<_>>().join("\n"),
    };
    print::text(&text)?;
    if secrets == Secrets::Redacted {
        print::line("### Look it over for what is private before showing it to others")?;
    }
    Ok(())
}

/// The name of a remote that the files have; a colon after it is no matter.
pub fn known<'a>(config: &Config, name: &'a str) -> Result<&'a str> {
    let name = name.strip_suffix(':').unwrap_or(name);
    if config.source(name).is_none() {
        let near = nearest(name, config.remotes());
        bail!(
            "unknown remote {name:?} ({})",
            near.map_or("see haul listremotes".into(), |n| format!("did you mean {n}?"))
        );
    }
    Ok(name)
}

/// Prints all as JSON.
pub fn dump(context: &Context) -> Result<()> {
    let config = context.session.config()?;
    let mut all = Map::new();
    let mut names = config.remotes();
    names.sort_unstable();
    for name in names {
        let mut options = config.options(name);
        options.sort();
        let options = options.into_iter().map(|(key, value)| (key, Value::String(value)));
        all.insert(name.into(), Value::Object(options.collect()));
    }
    print::line(&pretty(&Value::Object(all))?)
}

/// JSON with four spaces, as rclone prints it.
pub fn pretty(value: &Value) -> Result<String> {
    use serde::Serialize as _;
    let mut bytes = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, form))?;
    Ok(String::from_utf8(bytes)?)
}

/// Prints where the config file is.
pub fn file(context: &Context) -> Result<()> {
    let (path, exists) = match context.session.places() {
        ConfigPaths::Nowhere => bail!("no config file is in use: --config is empty"),
        ConfigPaths::Only(path) => (path.clone(), path.exists()),
        ConfigPaths::Both { own, rclone } => match [own, rclone].into_iter().find(|p| p.exists()) {
            Some(path) => (path.clone(), true),
            None => (own.clone(), false),
        },
    };
    let says = match exists {
        true => "Configuration file is stored at:",
        false => "Configuration file doesn't exist, but haul will use this path:",
    };
    print::line(&format!("{says}\n{}", path.display()))
}

/// Prints all places.
pub fn paths(context: &Context) -> Result<()> {
    match context.session.places() {
        ConfigPaths::Nowhere => print::line("Config file: none")?,
        ConfigPaths::Only(path) => print::line(&format!("Config file: {}", path.display()))?,
        ConfigPaths::Both { own, rclone } => {
            print::line(&format!("Config file: {}", own.display()))?;
            print::line(&format!("rclone's:    {}", rclone.display()))?;
        }
    }
    print::line(&format!("Temp dir:    {}", std::env::temp_dir().display()))
}

/// Prints the types of stores as JSON, in rclone's names.
pub fn providers() -> Result<()> {
    let kinds = registry::kinds().iter().map(|kind| {
        json!({
            "Name": kind.name,
            "Description": kind.description,
            "Prefix": kind.name,
            "Options": kind.options.iter().map(provider_option).collect::<Vec<_>>(),
        })
    });
    print::line(&pretty(&Value::Array(kinds.collect()))?)
}

/// An option, in rclone's words for one.
pub fn provider_option(option: &OptionSpec) -> Value {
    let kind = match option.kind {
        OptionKind::Text | OptionKind::Obscured | OptionKind::Remote => "string",
        OptionKind::Bool => "bool",
        OptionKind::Int => "int",
        OptionKind::Size => "SizeSuffix",
        OptionKind::Duration => "Duration",
    };
    let examples: Vec<Value> = option.examples.iter().map(|(v, help)| json!({ "Value": v, "Help": help })).collect();
    let default = match option.kind {
        OptionKind::Bool => json!(option.default == "true"),
        OptionKind::Int => option.default.parse::<i64>().map_or_else(|_| json!(option.default), |number| json!(number)),
        _ => json!(option.default),
    };
    json!({
        "Name": option.name,
        "FieldName": "",
        "Help": option.help,
        "Default": default,
        "Value": null,
        "Hide": 0,
        "Required": false,
        "IsPassword": option.kind == OptionKind::Obscured,
        "NoPrefix": false,
        "Advanced": option.advanced,
        "Exclusive": false,
        "Sensitive": option.secret,
        "DefaultStr": option.default,
        "ValueStr": option.default,
        "Type": kind,
        "Examples": examples,
    })
}

/// Prints a remote as a connection string.
pub fn string(args: StringArgs, context: &Context) -> Result<()> {
    let config = context.session.config()?;
    let (name, path) = args.remote.split_once(':').unwrap_or((&args.remote, ""));
    let name = known(config, name)?;
    let kind = config.get(name, "type").ok_or_else(|| usage(format!("remote {name:?} has no type")))?;
    let mut text = format!(":{kind}");
    for (key, value) in config.options(name).into_iter().filter(|(key, _)| key != "type") {
        text.push_str(&format!(",{key}={}", quoted(&value)));
    }
    print::line(&format!("{text}:{path}"))
}

fn quoted(value: &str) -> String {
    if value.contains([',', ':', '"', '\'', '=']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.into()
    }
}
