//! The manual names every command and every flag of the real binary, and none that isn't there.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// What the binary prints for these arguments.
fn haul(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(args).env_clear().output().unwrap();
    assert!(output.status.success(), "haul {args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn manual() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual.md")).unwrap()
}

/// Every `--flag` in a text. Two hyphens that continue a word, and rulers of hyphens, are none.
fn flags(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if !(before.is_alphanumeric() || before == '-') && text[at..].starts_with("--") {
            let is_part = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
            let name: String = text[at + 2..].chars().take_while(is_part).collect();
            let name = name.trim_end_matches('-');
            if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                found.insert(format!("--{name}"));
            }
        }
        before = c;
    }
    found
}

/// The flags that a help describes: those that begin its lines.
fn described(help: &str) -> BTreeSet<String> {
    let lines = help.lines().map(str::trim_start).filter(|l| l.starts_with('-'));
    lines.filter_map(|l| flags(l.split("  ").next().unwrap_or_default()).into_iter().next()).collect()
}

/// The names under `Commands:` in a help.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|l| !l.is_empty());
    lines.filter_map(|l| Some(l.strip_prefix("  ")?.split(' ').next()?.to_string())).filter(|n| !n.is_empty()).collect()
}

/// The commands of the first page, which shows them in groups.
fn all_commands(help: &str) -> Vec<String> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split(' ').next());
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).map(str::to_owned).collect()
}

#[test]
fn the_manual_names_every_command_and_flag_and_no_other() {
    let manual = manual();
    let mut real = described(&haul(&["help", "flags"]));
    let all = all_commands(&haul(&["--help"]));
    assert!(all.len() > 30 && real.len() > 100, "{} commands, {} flags", all.len(), real.len());
    real.extend(described(&haul(&["--help"])));
    for command in &all {
        assert!(manual.contains(&format!("`haul {command}")), "haul {command} isn't in the manual");
        let help = haul(&[command, "--help"]);
        real.extend(described(&help));
        for sub in commands(&help) {
            assert!(manual.contains(&format!("`haul {command} {sub}")), "haul {command} {sub} isn't in the manual");
            let help = haul(&[command, &sub, "--help"]);
            real.extend(described(&help));
            for last in commands(&help) {
                assert!(manual.contains(&format!("`{last}`")), "haul {command} {sub} {last} isn't in the manual");
                real.extend(described(&haul(&[command, &sub, &last, "--help"])));
            }
        }
    }
    let named = flags(&manual);
    let missing: Vec<_> = real.difference(&named).collect();
    assert!(missing.is_empty(), "flags that the manual doesn't name: {missing:?}");
    let unknown: Vec<_> = named.difference(&real).collect();
    assert!(unknown.is_empty(), "flags that haul doesn't have: {unknown:?}");
}

#[test]
fn the_places_that_other_pages_link_to_are_there() {
    let manual = manual();
    assert!(manual.contains("\n## Where haul differs from rclone\n"));
}

#[test]
fn flags_are_found_in_text() {
    let found = flags("`--a-b=1`, (--c) x--no --- |---| --d. `--s3-x2`");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["--a-b", "--c", "--d", "--s3-x2"]);
}
