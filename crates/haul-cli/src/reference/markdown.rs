//! `docs/reference.md`.

use super::{below, flags, takes_value, usage};
use crate::{environment::VARIABLES, error::code, help};
use clap::{Arg, Command};
use haul_remotes::registry;
use haul_store::OptionSpec;
use std::collections::BTreeMap;

/// So many flags under one heading aren't repeated: the second command that has the same ones points to the first.
const LONG: usize = 5;

const HEAD: &str = "# Reference

Every command, flag, option, variable and exit code. This file is written by `make reference` from the tables behind `haul help`:
change those, not this file. The [quick start](quick-start.md) and the [manual](manual.md) explain how to use them.

[Commands](#commands) · [Flags of any command](#flags-of-any-command) · [Options of stores](#options-of-stores) ·
[Environment variables](#environment-variables) · [Exit codes](#exit-codes)

";

/// The whole page about the commands of `tree`, made by [`super::tree`].
pub fn page(tree: &Command) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Commands\n\nFlags may stand before or after the command and its arguments.\n");
    let mut seen = BTreeMap::new();
    for (group, names) in help::GROUPS {
        page.push_str(&format!("\n### {group}\n"));
        for name in names {
            command(
                tree.find_subcommand(name).expect("a test holds the groups to the commands"),
                4,
                &mut seen,
                &mut page,
            );
        }
    }
    page.push_str(
        "\n## Flags of any command\n\nThey work with every command to which they apply. SIZE is a number with a suffix \
         (`B`, `K`, `M`, `G`, `T`, `P`: powers of 1024; none means KiB); DURATION is `90s`, `5m`, `1h30m`, `2d`.\n",
    );
    for (heading, args) in flags(tree).into_iter().filter(|(heading, _)| !is_store(heading)) {
        let heading = if heading.is_empty() { "Help".into() } else { heading };
        page.push_str(&format!("\n### Flags: {heading}\n\n{}", rows(&args)));
    }
    stores(&mut page);
    page.push_str("\n## Environment variables\n\n");
    page.push_str(&table(["Variable", "Meaning"], VARIABLES.iter().map(|(name, text)| [ticked(name), cell(text)])));
    page.push_str("\n## Exit codes\n\n");
    page.push_str(&table(
        ["Code", "Meaning"],
        code::MEANINGS.iter().map(|(code, text)| [code.to_string(), cell(text)]),
    ));
    page.push_str("\nIf a job has several errors, the last one decides. `haul rsync` and `haul dcp` have rsync's and dcp's codes.\n");
    page
}

/// A command's section, and those of the commands below it. `seen` has the long groups of flags that are in the page already,
/// by their text, with the command that has them.
fn command(command: &Command, level: usize, seen: &mut BTreeMap<String, String>, page: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    page.push_str(&format!("\n{} {name}\n\n", "#".repeat(level)));
    page.push_str(&format!("{}\n```\n{}\n```\n", about(command), usage(command)));
    let positionals: Vec<&Arg> = command.get_positionals().filter(|arg| arg.get_help().is_some()).collect();
    if !positionals.is_empty() {
        page.push_str(&format!("\n{}", rows(&positionals)));
    }
    for (heading, args) in flags(command) {
        let text = rows(&args);
        let title = if heading.is_empty() { String::new() } else { format!("\n{heading}:\n") };
        match seen.get(&text).filter(|_| args.len() >= LONG) {
            Some(first) => page.push_str(&format!("{title}\nThe same as those of [{first}](#{}).\n", anchor(first))),
            None => {
                page.push_str(&format!("{title}\n{text}"));
                seen.insert(text, name.clone());
            }
        }
    }
    for sub in below(command) {
        self::command(sub, level + 1, seen, page);
    }
}

/// Description of a command, its examples as code.
fn about(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut out = String::new();
    let mut examples = Vec::new();
    for (at, paragraph) in text.split("\n\n").enumerate() {
        match paragraph.strip_prefix("Example: ") {
            Some(example) => examples.push(example.to_owned()),
            None => {
                let stop = if at == 0 && !paragraph.ends_with('.') { "." } else { "" };
                out.push_str(&format!("{}{stop}\n\n", cell(paragraph)));
            }
        }
    }
    if !examples.is_empty() {
        out.push_str(&format!("```sh\n{}\n```\n\n", examples.join("\n")));
    }
    out.trim_end_matches('\n').to_owned() + "\n"
}

/// A table of flags or arguments.
fn rows(args: &[&Arg]) -> String {
    let head = if args.iter().all(|arg| arg.is_positional()) { "Argument" } else { "Flag" };
    table([head, "Meaning"], args.iter().map(|arg| [spelt(arg), meaning(arg)]))
}

/// `-n`, `--dry-run`, each with its value.
fn spelt(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    if arg.is_positional() {
        return ticked(&names.join(" "));
    }
    let value = match names.first().filter(|_| takes_value(arg)) {
        Some(name) if arg.get_num_args().is_some_and(|range| range.min_values() == 0) => format!("[={name}]"),
        Some(name) if arg.is_require_equals_set() => format!("={name}"),
        Some(name) => format!(" {name}"),
        None => String::new(),
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    match (short, long) {
        (Some(short), Some(long)) => format!("{}, {}", ticked(&short), ticked(&(long + &value))),
        (Some(one), None) | (None, Some(one)) => ticked(&(one + &value)),
        (None, None) => String::new(),
    }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<String> = help.split("\n\n").map(cell).collect();
    let mut text = paragraphs.join(". ");
    if !takes_value(arg) {
        return text;
    }
    let values: Vec<String> =
        arg.get_possible_values().iter().filter(|_| !arg.is_hide_possible_values_set()).map(value).collect();
    if !values.is_empty() {
        text.push_str(&format!(". Values: {}", values.join("; ")));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && defaults.iter().all(|value| !value.is_empty()) {
        text.push_str(&format!(" [default: {}]", cell(&defaults.join(","))));
    }
    text
}

fn value(value: &clap::builder::PossibleValue) -> String {
    let help = value.get_help().map(|help| format!(" ({})", cell(&help.to_string()))).unwrap_or_default();
    format!("`{}`{help}", value.get_name())
}

fn stores(page: &mut String) {
    page.push_str(
        "\n## Options of stores\n\nIn a config file or connection string, an option is named like the flag, without \
         the store's name and with underscores: `access_key_id` for `--s3-access-key-id`.\n",
    );
    for kind in registry::kinds().iter().filter(|kind| !kind.options.is_empty()) {
        page.push_str(&format!("\n### Store: {}\n\n{}.\n\n", kind.name, kind.description.trim_end_matches('.')));
        page.push_str(&table(
            ["Flag", "Default", "Meaning"],
            kind.options.iter().map(|option| {
                let flag = format!("--{}-{}", kind.name, option.name.replace('_', "-"));
                let default = if option.default.is_empty() { String::new() } else { ticked(option.default) };
                [ticked(&flag), default, explained(option)]
            }),
        ));
    }
}

fn explained(option: &OptionSpec) -> String {
    let mut text = cell(option.help);
    let values: Vec<String> =
        option.examples.iter().map(|(value, help)| format!("{} ({})", ticked(value), cell(help))).collect();
    if !values.is_empty() {
        text.push_str(&format!(" Values: {}.", values.join("; ")));
    }
    text
}

fn is_store(heading: &str) -> bool {
    heading.starts_with("Stores of type")
}

/// A table, left out where it has no rows.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let body: String = rows.map(|row| line(&row)).collect();
    format!("{}|{}\n{body}", line(&head), "---|".repeat(N))
}

/// Text as markdown that shows it as it is, on one line.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '|' | '*' | '<') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn ticked(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// The place of a heading, as GitHub names it.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}
