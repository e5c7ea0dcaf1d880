//! How the tree of commands is shown: grouped by task on the first page, with common flags below each command.

use crate::colour::{BOLD, paint};
use clap::{Arg, ArgAction, Command, builder::StyledStr};

/// The commands by task, as `haul help` shows them.
pub const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Copy and compare",
        &[
            "copy",
            "sync",
            "move",
            "copyto",
            "moveto",
            "copyurl",
            "check",
            "checksum",
            "cryptcheck",
            "status",
            "rsync",
            "dcp",
        ],
    ),
    (
        "List and read",
        &[
            "ls",
            "lsl",
            "lsd",
            "lsf",
            "lsjson",
            "tree",
            "size",
            "ncdu",
            "about",
            "cat",
            "hashsum",
            "md5sum",
            "sha1sum",
            "link",
            "cryptdecode",
        ],
    ),
    (
        "Create and delete",
        &["mkdir", "touch", "rcat", "delete", "deletefile", "purge", "rmdir", "rmdirs", "dedupe", "cleanup", "settier"],
    ),
    ("Jobs on many machines, and interrupted jobs", &["fleet", "jobs", "resume"]),
    ("Versions of data", &["snapshot", "dvc"]),
    (
        "Set up",
        &["config", "authorize", "listremotes", "obscure", "bench", "far", "sbatch", "completion", "help", "version"],
    ),
];

/// Flags that most people want with a command, of those that work with any.
pub const COMMON: [(&[&str], &[&str]); 4] = [
    (
        &["copy", "sync", "move", "copyto", "moveto"],
        &[
            "progress",
            "dry-run",
            "include",
            "exclude",
            "filter",
            "checksum",
            "update",
            "transfers",
            "bwlimit",
            "verbose",
        ],
    ),
    (
        &["check", "checksum", "status"],
        &["include", "exclude", "filter", "checksum", "size-only", "checkers", "verbose"],
    ),
    (
        &["ls", "lsl", "lsd", "lsf", "lsjson", "tree", "size", "ncdu", "cat", "hashsum", "md5sum", "sha1sum"],
        &["include", "exclude", "max-depth", "min-size", "max-age", "fast-list"],
    ),
    (
        &["delete", "purge", "rmdirs", "dedupe", "cleanup", "touch"],
        &["dry-run", "interactive", "include", "exclude", "min-age"],
    ),
];

/// The tree with its first page in groups, and with the common flags below each command's own.
pub fn arrange(tree: Command) -> Command {
    let page = page(&tree);
    let notes: Vec<(String, StyledStr)> = tree
        .get_subcommands()
        .filter(|command| !command.get_positionals().any(Arg::is_trailing_var_arg_set))
        .map(|command| (command.get_name().to_owned(), note(&tree, command.get_name())))
        .collect();
    let tree = notes.into_iter().fold(tree, |tree, (name, note)| tree.mut_subcommand(name, |c| c.after_help(note)));
    tree.help_template(page)
}

fn heading(text: &str) -> String {
    paint(&format!("{text}:"), BOLD, true)
}

fn page(tree: &Command) -> StyledStr {
    let mut page = format!("{{about}}\n\n{} haul [FLAGS] COMMAND [ARGUMENTS]\n", heading("Usage"));
    for (title, names) in GROUPS {
        page.push_str(&format!("\n{}\n", heading(title)));
        for name in names {
            // One that was left out of this build isn't there.
            let Some(command) = tree.find_subcommand(name) else { continue };
            let about = command.get_about().map(ToString::to_string);
            page.push_str(&format!("  {name:<12} {}\n", about.unwrap_or_default()));
        }
    }
    page.push_str("{after-help}\n");
    page.into()
}

fn note(tree: &Command, command: &str) -> StyledStr {
    let common = COMMON.iter().find(|(commands, _)| commands.contains(&command));
    let mut note = String::new();
    if let Some((_, flags)) = common {
        note.push_str(&format!("{}\n", heading("Common flags")));
        for flag in tree.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| flags.contains(&long))) {
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            note.push_str(&format!("  {:<28} {help}\n", spelt(flag)));
        }
        note.push('\n');
    }
    note.push_str(
        "haul help flags lists the flags that work with any command; haul help flags WORD finds those that match WORD.",
    );
    note.into()
}

/// `-n, --dry-run`, `    --exclude <PATTERN>`.
fn spelt(arg: &Arg) -> String {
    let short = arg.get_short().map_or("    ".into(), |short| format!("-{short}, "));
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let value = arg.get_value_names().filter(|_| takes).and_then(|names| names.first());
    let value = value.map_or(String::new(), |name| format!(" <{name}>"));
    format!("{short}--{}{value}", arg.get_long().unwrap_or_default())
}
