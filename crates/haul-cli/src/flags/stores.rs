//! Flags for the options of stores, made from the stores' own tables.

use clap::{Arg, ArgMatches};
use haul_remotes::{StoreFlags, registry};
use haul_store::{OptionKind, OptionSpec, StoreKind};

/// A flag for each option of each kind.
pub fn all() -> impl Iterator<Item = Arg> {
    registry::kinds().iter().flat_map(|kind| kind.options.iter().map(move |option| flag(kind, option)))
}

/// `--s3-access-key-id` for the option `access_key_id` of `s3`.
pub fn name(kind: &StoreKind, option: &OptionSpec) -> String {
    format!("{}-{}", kind.name, option.name.replace('_', "-"))
}

/// True for a variable that sets such an option: it has its own place in the precedence, see `haul-remotes`.
pub fn is_variable(name: &str) -> bool {
    // `HAUL_HTTP_PROXY` is a flag's.
    registry::kinds().iter().any(|kind| {
        let of_kind = name.split_once(&format!("_{}_", kind.name.to_uppercase()));
        of_kind.is_some_and(|(_, rest)| kind.options.iter().any(|option| option.name.to_uppercase() == rest))
    })
}

/// Those that were given.
pub fn from_matches(matches: &ArgMatches) -> StoreFlags {
    let mut all = StoreFlags::new();
    for kind in registry::kinds() {
        for option in kind.options {
            let value = matches.try_get_one::<String>(&name(kind, option));
            if let Ok(Some(value)) = value {
                all.entry(kind.name.into()).or_default().insert(option.name.into(), value.clone());
            }
        }
    }
    all
}

fn flag(kind: &StoreKind, option: &OptionSpec) -> Arg {
    let name = name(kind, option);
    let first = option.help.lines().next().unwrap_or_default().trim_end_matches('.').to_string();
    let heading = format!("Stores of type {}", kind.name);
    let arg = Arg::new(name.clone()).long(name).help(first).help_heading(heading);
    match option.kind {
        OptionKind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL"),
        OptionKind::Int => arg.value_name("N").allow_hyphen_values(true),
        OptionKind::Size => arg.value_name("SIZE").allow_hyphen_values(true),
        OptionKind::Duration => arg.value_name("DURATION").allow_hyphen_values(true),
        OptionKind::Remote => arg.value_name("REMOTE:PATH").allow_hyphen_values(true),
        OptionKind::Text | OptionKind::Obscured => arg.value_name("TEXT").allow_hyphen_values(true),
    }
}
