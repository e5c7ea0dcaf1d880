//! Man pages: `haul.1` with the flags of any command, and one page for each command with its own flags alone.

use super::{below, usage};
use crate::{environment::VARIABLES, error::code, help};
use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use std::io;

/// All pages about the commands of `tree`, made by [`super::tree`]: file name and text.
///
/// Errors: none of a disk; those of writing into memory.
pub fn pages(tree: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = vec![("haul.1".into(), first(tree)?)];
    for command in below(tree) {
        add(command, &mut pages)?;
    }
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((format!("{}.1", title(command)), page(command)?));
    for sub in below(command) {
        add(sub, pages)?;
    }
    Ok(())
}

/// `haul-config-create`.
fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn man(command: &Command) -> Man {
    Man::new(command.clone().override_usage(usage(command)))
        .title(title(command))
        .source(format!("haul {}", env!("CARGO_PKG_VERSION")))
        .manual("haul manual")
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let man = man(command);
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut out)?;
    }
    if below(command).next().is_some() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut rest = Roff::default();
    rest.control("SH", ["SEE ALSO"]);
    let own_parser = matches!(command.get_name(), "rsync" | "dcp");
    let place = if own_parser { "; they stand before the word " } else { "" };
    let word = if own_parser { command.get_name() } else { "" };
    rest.text([
        bold("haul"),
        roman("(1) has the flags that work with any command, environment variables and exit codes"),
        roman(place),
        bold(word),
        roman("."),
    ]);
    rest.to_writer(&mut out)?;
    Ok(out)
}

/// `haul.1`.
fn first(tree: &Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let man = man(tree);
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    let mut text = Roff::default();
    text.control("SH", ["DESCRIPTION"]);
    text.text([roman(
        "haul copies, syncs, moves, compares and lists files on disks and in clouds. It takes rclone's commands, flags, remotes and \
         config file; haul rsync and haul dcp take rsync's and dcp's options.",
    )]);
    text.control("PP", []);
    text.text([roman(
        "Each command has a page of its own: man haul-copy. Flags may stand before or after the command.",
    )]);
    text.control("SH", ["COMMANDS"]);
    for (group, names) in help::GROUPS {
        text.control("SS", [group]);
        for name in names {
            let about = tree.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            entry(&mut text, &format!("haul-{name}(1)"), &about.unwrap_or_default());
        }
    }
    text.to_writer(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut rest = Roff::default();
    rest.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in VARIABLES {
        entry(&mut rest, name, meaning);
    }
    rest.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in code::MEANINGS {
        entry(&mut rest, &code.to_string(), meaning);
    }
    rest.to_writer(&mut out)?;
    Ok(out)
}

fn entry(text: &mut Roff, name: &str, meaning: &str) {
    text.control("TP", []);
    text.text([bold(name)]);
    text.text([roman(meaning)]);
}
