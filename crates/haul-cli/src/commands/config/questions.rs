//! The options of a remote, asked of a program one after another (`config create --non-interactive --all`), before what a log-in asks.
//! States are rclone's: `*all-set,NUMBER,ADVANCED`, and `*all-advanced` for whether the advanced ones are asked too.

use super::{login::Machine, show::provider_option};
use crate::error::usage;
use anyhow::Result;
use haul_remotes::registry;
use haul_store::{OptionKind, OptionSpec};
use serde_json::{Value, json};

const SET: &str = "*all-set";
const ADVANCED: &str = "*all-advanced";

/// Result of an answer.
#[derive(Default)]
pub struct Next {
    /// The option that the answer sets, as it was typed.
    pub set: Option<(&'static str, String)>,
    /// The next question; `None` when all options were asked.
    pub ask: Option<Value>,
}

/// The question that comes first or after an answer; `None` where the program asks for something else.
///
/// Errors: there is no such option, or no such type.
pub fn next(kind: &str, machine: &Machine) -> Result<Option<Next>> {
    let options = registry::kind(kind)?.options;
    let answer = machine.result.as_deref().unwrap_or_default();
    let Some(state) = machine.state.as_deref() else {
        return Ok(machine.all.then(|| Next { set: None, ask: after(options, 0, false) }));
    };
    if state == ADVANCED {
        let ask = if answer == "true" { after(options, 0, true) } else { None };
        return Ok(Some(Next { set: None, ask }));
    }
    let Some(place) = state.strip_prefix(SET).and_then(|rest| rest.strip_prefix(',')) else { return Ok(None) };
    let unknown = || usage(format!("{state:?} is no state of a dialogue"));
    let (number, advanced) = place.split_once(',').ok_or_else(unknown)?;
    let number: usize = number.parse().map_err(|_| unknown())?;
    let option = options.get(number).ok_or_else(unknown)?;
    let advanced = advanced == "true";
    if option.kind == OptionKind::Bool && !matches!(answer, "" | "true" | "false") {
        let error = format!("{answer:?} is neither true nor false");
        return Ok(Some(Next { set: None, ask: Some(question_json(option, number, advanced, &error)) }));
    }
    // As with rclone, what is as it would be anyway isn't written down.
    let is_set = !answer.is_empty() && answer != option.default;
    let set = is_set.then(|| (option.name, answer.to_owned()));
    Ok(Some(Next { set, ask: after(options, number + 1, advanced) }))
}

/// The question for the first option from this one on; whether to go on with the advanced ones, once there are no others.
fn after(options: &[OptionSpec], from: usize, advanced: bool) -> Option<Value> {
    let found = options.iter().enumerate().skip(from).find(|(_, option)| option.advanced == advanced);
    match found {
        Some((number, option)) => Some(question_json(option, number, advanced, "")),
        None if !advanced && options.iter().any(|option| option.advanced) => Some(whether()),
        None => None,
    }
}

fn question_json(option: &OptionSpec, number: usize, advanced: bool, error: &str) -> Value {
    json!({ "State": format!("{SET},{number},{advanced}"), "Option": provider_option(option), "Error": error, "Result": "" })
}

fn whether() -> Value {
    let option = OptionSpec {
        name: "config_fs_advanced",
        help: "Edit advanced config?",
        default: "false",
        kind: OptionKind::Bool,
        advanced: false,
        secret: false,
        examples: &[("true", "Yes"), ("false", "No")],
    };
    let mut shown = provider_option(&option);
    shown["Exclusive"] = true.into();
    json!({ "State": ADVANCED, "Option": shown, "Error": "", "Result": "" })
}
