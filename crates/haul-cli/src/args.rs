//! Puts a command line in order before clap reads it: flags that belong to no command go before the command, values
//! are joined to their flags, `--flag=false` cancels a flag, the last of repeated flags counts, and the environment's
//! flags come first. An unknown flag or command is reported here, with the nearest name.

use crate::error::Usage;
use clap::{ArgAction, Command};
use haul_core::text::{boolean, csv, nearest};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// Reads an environment variable; empty counts as unset.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Kind of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    /// Nothing: it is on or off.
    Switch,
    /// Nothing: it counts.
    Count,
    /// A value.
    Value,
    /// A value after `=`, or none.
    Maybe,
}

#[derive(Clone, Debug)]
struct Flag {
    long: Option<String>,
    short: Option<char>,
    takes: ValueKind,
    list: bool,
    /// Help and version answer for the command they stand at.
    local: bool,
}

/// Advice for commands of other programs that haul doesn't have.
const OTHER_NAMES: [(&str, &str); 11] = [
    ("cp", "use copy, or copyto to give a file a new name"),
    ("mv", "use move, or moveto to give a file a new name"),
    ("rm", "use deletefile for one file, delete for the files in a path, purge for a whole directory"),
    ("du", "use size"),
    ("mount", RCLONE),
    ("nfsmount", RCLONE),
    ("serve", RCLONE),
    ("bisync", RCLONE),
    ("backend", RCLONE),
    ("rc", RCLONE),
    ("rcd", RCLONE),
];

/// Other words for commands that several of haul's commands have.
const OTHER_WORDS: [(&str, &str); 4] = [("ls", "list"), ("rm", "remove"), ("add", "create"), ("del", "delete")];

/// Advice for flags of other programs that haul doesn't have, at these commands: its long form, its letter, and the text.
const OTHER_FLAGS: [(&[&str], &str, Option<char>, &str); 6] = [
    (&["sync"], "delete", None, "sync always deletes what only the destination has; copy never does"),
    (&["copy", "copyto", "move", "moveto"], "delete", None, "only sync deletes what the source doesn't have"),
    (&JOBS, "recursive", Some('r'), "all that is below a directory goes along without it"),
    (&JOBS, "archive", Some('a'), "use --metadata, or haul rsync -a"),
    (&JOBS, "compress", Some('z'), "use haul rsync -z"),
    (
        &["ls", "lsl", "size", "delete", "check", "hashsum", "md5sum", "sha1sum"],
        "recursive",
        Some('r'),
        "it is so by itself",
    ),
];

const JOBS: [&str; 5] = ["copy", "copyto", "move", "moveto", "sync"];

/// Commands of dvc that `haul dvc` leaves to it.
const OF_DVC: [&str; 26] = [
    "cache",
    "commit",
    "config",
    "dag",
    "destroy",
    "diff",
    "du",
    "exp",
    "freeze",
    "get",
    "get-url",
    "import",
    "import-url",
    "init",
    "install",
    "list",
    "ls",
    "metrics",
    "move",
    "params",
    "plots",
    "remote",
    "remove",
    "repro",
    "stage",
    "update",
];

const RCLONE: &str = "haul doesn't have it; rclone does, with the same remotes";

/// Groups of haul's flags that mean nothing to a command with another program's options, which come after the command's name.
const NOT_BEFORE_RAW: [&str; 6] =
    ["Copy", "Sync", "Metadata and links", "Filter", "Performance and retries", "Attributes, between file systems"];
/// Flags of these groups that act there all the same.
const BEFORE_RAW: [&str; 2] = ["max-memory", "low-level-retries"];

/// A flag in its final form.
struct ParsedFlag {
    flag: Flag,
    value: Option<OsString>,
}

/// The command line that clap reads.
///
/// Errors: an unknown flag or command, a flag without its value, a switch with a value that isn't true or false.
pub fn arrange(root: &Command, argv: Vec<OsString>, env: Env<'_>) -> Result<Vec<OsString>, Usage> {
    let mut line = Line::new(root);
    line.read(argv.into_iter().skip(1))?;
    line.place_early()?;
    if line.raw {
        refuse_what_would_be_ignored(root, &line)?;
    }
    let mut all = vec![OsString::from("haul")];
    let global = with_environment(&line.globals, line.global, env)?;
    all.extend(global.into_iter().flat_map(spell));
    all.extend(line.command);
    let local = with_environment(&line.locals, line.local, env)?;
    all.extend(local.into_iter().flat_map(spell));
    all.extend(line.rest);
    Ok(all)
}

/// The message for a command that `parent`, haul itself or one of its commands, doesn't have.
pub fn unknown(parent: &Command, name: &str) -> Usage {
    let is_root = parent.get_name() == "haul";
    if let Some((_, instead)) = OTHER_NAMES.iter().find(|(other, _)| is_root && *other == name) {
        return Usage(format!("unknown command {name:?} ({instead})"));
    }
    if parent.get_name() == "dvc" && OF_DVC.contains(&name) {
        return Usage(format!("haul dvc has no {name}: use dvc {name}, which works in the same repository"));
    }
    let other = OTHER_WORDS.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
    let other = other.filter(|own| parent.find_subcommand(own).is_some());
    let near = other.or_else(|| nearest(name, parent.get_subcommands().map(|c| c.get_name())));
    let near = near.map_or("see haul help".into(), |n| format!("did you mean {n}?"));
    let parent = if is_root { String::new() } else { format!(" of haul {}", parent.get_name()) };
    Usage(format!("unknown command {name:?}{parent} ({near})"))
}

/// Refuses flags that stand before a command with another program's options, and that it wouldn't see.
fn refuse_what_would_be_ignored(root: &Command, line: &Line<'_>) -> Result<(), Usage> {
    let ignored = |name: &str| {
        let arg = root.get_arguments().find(|arg| arg.get_long() == Some(name));
        let group = arg.and_then(clap::Arg::get_help_heading);
        group.is_some_and(|group| NOT_BEFORE_RAW.contains(&group)) && !BEFORE_RAW.contains(&name)
    };
    let Some(given) = line.global.iter().find(|given| given.flag.long.as_deref().is_some_and(ignored)) else {
        return Ok(());
    };
    let command = line.current.get_name();
    Err(Usage(format!(
        "{} before the word {command} has no effect: type {command}'s own options after it (haul {command} --help)",
        shown(&given.flag)
    )))
}

/// Owner of a flag.
enum FlagScope {
    /// Every command's.
    All,
    /// The command's that was named.
    This,
    /// Of commands; which of them it is comes later.
    Others,
}

struct Line<'a> {
    root: &'a Command,
    current: &'a Command,
    is_root: bool,
    /// The command reads the rest of the line by itself.
    raw: bool,
    globals: Vec<Flag>,
    locals: Vec<Flag>,
    /// Words that name the command.
    command: Vec<OsString>,
    global: Vec<ParsedFlag>,
    local: Vec<ParsedFlag>,
    /// Flags of commands that came before the command's name.
    early: Vec<ParsedFlag>,
    /// Everything that is no flag.
    rest: Vec<OsString>,
}

impl<'a> Line<'a> {
    fn new(root: &'a Command) -> Self {
        Line {
            root,
            current: root,
            is_root: true,
            raw: false,
            globals: table(root).into_iter().filter(|f| !f.local).collect(),
            locals: table(root).into_iter().filter(|f| f.local).collect(),
            command: Vec::new(),
            global: Vec::new(),
            local: Vec::new(),
            early: Vec::new(),
            rest: Vec::new(),
        }
    }

    fn read(&mut self, args: impl Iterator<Item = OsString>) -> Result<(), Usage> {
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let bytes = arg.as_bytes();
            if self.raw {
                // The parser below takes a first `--` away.
                self.rest.extend((bytes == b"--").then(|| arg.clone()));
                self.rest.push(arg);
                self.rest.extend(args);
                return Ok(());
            }
            if bytes == b"--" {
                self.rest.push(arg);
                self.rest.extend(args);
                return Ok(());
            }
            match bytes {
                [b'-', b'-', name @ ..] => self.long(name, &mut args)?,
                [b'-', first, ..] if !first.is_ascii_digit() => self.shorts(&arg, &mut args)?,
                _ => self.word(arg)?,
            }
        }
        Ok(())
    }

    /// A word: the next part of the command's name while there may be one, else an argument.
    fn word(&mut self, arg: OsString) -> Result<(), Usage> {
        if !self.rest.is_empty() || !self.current.has_subcommands() {
            self.rest.push(arg);
            return Ok(());
        }
        let name = arg.to_string_lossy();
        if let Some(next) = self.current.find_subcommand(name.as_ref()) {
            self.current = next;
            self.is_root = false;
            self.locals = table(next);
            self.command.push(arg);
            self.raw = next.get_positionals().any(|arg| arg.is_trailing_var_arg_set());
            return Ok(());
        }
        if self.current.get_positionals().next().is_some() {
            self.rest.push(arg);
            return Ok(());
        }
        Err(unknown(self.current, &name))
    }

    fn long(&mut self, text: &[u8], args: &mut impl Iterator<Item = OsString>) -> Result<(), Usage> {
        let (name, value) = match text.iter().position(|b| *b == b'=') {
            Some(at) => (&text[..at], Some(OsString::from_vec(text[at + 1..].to_vec()))),
            None => (text, None),
        };
        let name = String::from_utf8_lossy(name);
        let is = |f: &Flag| f.long.as_deref() == Some(name.as_ref());
        let Some((flag, place)) = self.find(is) else { return Err(self.unknown_long(&name)) };
        let value = match (flag.takes, value) {
            (ValueKind::Value, None) => Some(args.next().ok_or_else(|| Usage(format!("--{name} needs a value")))?),
            (_, value) => value,
        };
        self.give(ParsedFlag { flag, value }, place);
        Ok(())
    }

    fn unknown_long(&self, name: &str) -> Usage {
        let longs = self.locals.iter().chain(&self.globals).filter_map(|f| f.long.as_deref());
        let near = nearest(name, longs).map(|n| format!("did you mean --{n}?"));
        let near = self.instead(|long, _| long == name).or_else(|| self.elsewhere(name)).or(near);
        Usage(format!("unknown flag --{name} ({})", near.unwrap_or_else(|| "see haul help flags".into())))
    }

    /// Advice for a flag of other programs.
    fn instead(&self, is: impl Fn(&str, Option<char>) -> bool) -> Option<String> {
        let command = self.current.get_name();
        let found = OTHER_FLAGS.iter().find(|(of, long, short, _)| of.contains(&command) && is(long, *short));
        found.map(|(.., say)| (*say).to_owned())
    }

    /// Gives the command its flags that came before its name.
    fn place_early(&mut self) -> Result<(), Usage> {
        let mut early = Vec::new();
        for ParsedFlag { flag, value } in std::mem::take(&mut self.early) {
            let is = |own: &&Flag| {
                own.takes == flag.takes
                    && (own.long.is_some() && own.long == flag.long || own.short.is_some() && own.short == flag.short)
            };
            let Some(own) = self.locals.iter().find(is).filter(|_| !self.raw && !self.is_root) else {
                return Err(match (&flag.long, flag.short) {
                    (Some(long), _) => self.unknown_long(long),
                    (None, letter) => Usage(format!(
                        "unknown flag {} (see haul help flags)",
                        letter.map_or_else(String::new, |letter| format!("-{letter}"))
                    )),
                });
            };
            early.push(ParsedFlag { flag: own.clone(), value });
        }
        // Of one that repeats the last counts.
        self.local.splice(0..0, early);
        Ok(())
    }

    fn shorts(&mut self, arg: &OsStr, args: &mut impl Iterator<Item = OsString>) -> Result<(), Usage> {
        let shown = arg.to_string_lossy().into_owned();
        let mut rest = &arg.as_bytes()[1..];
        while let Some((letter, after)) = rest.split_first() {
            let letter = char::from(*letter);
            let Some((flag, place)) = self.find(|f| f.short == Some(letter)) else {
                let whole = if shown.len() > 2 { format!(" in {shown}") } else { String::new() };
                let instead = self.instead(|_, short| short == Some(letter));
                let instead = instead.unwrap_or_else(|| "see haul help flags".into());
                return Err(Usage(format!("unknown flag -{letter}{whole} ({instead})")));
            };
            let joined = after.strip_prefix(b"=").map(|v| OsString::from_vec(v.to_vec()));
            let (value, next) = match flag.takes {
                ValueKind::Value => match (joined, after) {
                    (Some(value), _) => (Some(value), &b""[..]),
                    (None, []) => {
                        (Some(args.next().ok_or_else(|| Usage(format!("-{letter} needs a value")))?), &b""[..])
                    }
                    (None, value) => (Some(OsString::from_vec(value.to_vec())), &b""[..]),
                },
                _ if joined.is_some() => (joined, &b""[..]),
                _ => (None, after),
            };
            rest = next;
            self.give(ParsedFlag { flag, value }, place);
        }
        Ok(())
    }

    /// Takes a flag as it came: what repeats is sorted out when the environment's flags stand before it.
    fn give(&mut self, given: ParsedFlag, place: FlagScope) {
        match place {
            FlagScope::All => self.global.push(given),
            FlagScope::This => self.local.push(given),
            FlagScope::Others => self.early.push(given),
        }
    }

    /// Which other commands have a flag of just this name.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let has = |command: &&Command| command.get_arguments().any(|arg| arg.get_long() == Some(name));
        let commands: Vec<_> = self.root.get_subcommands().filter(has).map(Command::get_name).collect();
        match commands.as_slice() {
            [] => None,
            [only] => Some(format!("only {only} has it")),
            [first @ .., last] => Some(format!("only {} and {last} have it", first.join(", "))),
        }
    }

    /// The flag that matches, the command's own first. Before the command is known, one that commands have of which all want a value
    /// or none does.
    fn find(&self, is: impl Fn(&Flag) -> bool) -> Option<(Flag, FlagScope)> {
        let own = self.locals.iter().find(|f| is(f)).map(|f| (f, FlagScope::This));
        if let Some((flag, of)) = own.or_else(|| self.globals.iter().find(|f| is(f)).map(|f| (f, FlagScope::All))) {
            return Some((flag.clone(), of));
        }
        if !self.is_root {
            return None;
        }
        let theirs: Vec<Flag> = self.root.get_subcommands().flat_map(table).filter(|flag| is(flag)).collect();
        let first = theirs.first()?.clone();
        theirs.iter().all(|flag| flag.takes == first.takes).then_some((first, FlagScope::Others))
    }
}

/// Adds a flag; of those that can't repeat the last counts.
fn push(list: &mut Vec<ParsedFlag>, mut given: ParsedFlag) -> Result<(), Usage> {
    let flag = given.flag.clone();
    let same = |g: &ParsedFlag| g.flag.long == flag.long && g.flag.short == flag.short;
    match flag.takes {
        ValueKind::Count => {
            let Some(value) = given.value.take() else {
                list.push(given);
                return Ok(());
            };
            let times: u8 = number(&value).ok_or_else(|| bad(&flag, &value, "a number"))?;
            list.retain(|g| !same(g));
            list.extend((0..times).map(|_| ParsedFlag { flag: flag.clone(), value: None }));
        }
        ValueKind::Switch => {
            let on = match given.value.take() {
                None => true,
                Some(value) => switch(&value).ok_or_else(|| bad(&flag, &value, "true or false"))?,
            };
            list.retain(|g| !same(g));
            if on {
                list.push(given);
            }
        }
        ValueKind::Value | ValueKind::Maybe => {
            if !flag.list {
                list.retain(|g| !same(g));
            }
            list.push(given);
        }
    }
    Ok(())
}

fn number(value: &OsStr) -> Option<u8> {
    match value.to_str()? {
        text if boolean(text) == Some(true) => Some(1),
        text if boolean(text) == Some(false) => Some(0),
        text => text.parse().ok(),
    }
}

fn switch(value: &OsStr) -> Option<bool> {
    boolean(value.to_str()?)
}

fn bad(flag: &Flag, value: &OsStr, want: &str) -> Usage {
    Usage(format!("{} {:?}: it must be {want}", shown(flag), value.to_string_lossy()))
}

fn shown(flag: &Flag) -> String {
    match (&flag.long, flag.short) {
        (Some(long), _) => format!("--{long}"),
        (None, short) => format!("-{}", short.unwrap_or('?')),
    }
}

/// Flags from the environment (`HAUL_X`, else `RCLONE_X`), then those of the command line.
fn with_environment(table: &[Flag], given: Vec<ParsedFlag>, env: Env<'_>) -> Result<Vec<ParsedFlag>, Usage> {
    let mut all = Vec::new();
    for flag in table.iter().filter(|f| !f.local) {
        let Some(long) = flag.long.as_deref().filter(|l| !OWN_VARIABLES.contains(l)) else { continue };
        let found = variables(long).into_iter().find_map(|n| Some((env(&n)?, n)));
        let Some((value, name)) = found else { continue };
        let values = if flag.list { fields(&value) } else { vec![value] };
        for value in values {
            let given = ParsedFlag { flag: flag.clone(), value: Some(value) };
            push(&mut all, given).map_err(|e| Usage(format!("{name}: {}", e.0)))?;
        }
    }
    for one in given {
        push(&mut all, one)?;
    }
    Ok(all)
}

/// The variables that give a flag of this long form its value, the one that counts first.
pub fn variables(long: &str) -> [String; 2] {
    let upper = long.to_uppercase().replace('-', "_");
    ["HAUL", "RCLONE"].map(|program| format!("{program}_{upper}"))
}

/// Flags whose variables mean something of their own: `HAUL_CONFIG` says where haul's file is, and leaves rclone's in use.
const OWN_VARIABLES: [&str; 1] = ["config"];

fn fields(value: &OsStr) -> Vec<OsString> {
    match value.to_str() {
        Some(text) => csv(text).into_iter().map(OsString::from).collect(),
        None => vec![value.into()],
    }
}

/// A flag as one word that can't be mistaken for two.
fn spell(given: ParsedFlag) -> Option<OsString> {
    let mut word = OsString::new();
    match (&given.flag.long, given.flag.short) {
        (Some(long), _) => {
            word.push(format!("--{long}"));
            if let Some(value) = given.value {
                word.push("=");
                word.push(value);
            }
        }
        (None, short) => {
            word.push(format!("-{}", short?));
            if let Some(value) = given.value {
                word.push(value);
            }
        }
    }
    Some(word)
}

fn table(command: &Command) -> Vec<Flag> {
    command.get_arguments().filter(|a| !a.is_positional()).flat_map(flags).collect()
}

/// A flag, and one more for each of its other names.
fn flags(arg: &clap::Arg) -> Vec<Flag> {
    let takes = match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => ValueKind::Switch,
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version => ValueKind::Switch,
        ArgAction::Count => ValueKind::Count,
        _ if arg.get_num_args().is_some_and(|n| n.min_values() == 0) => ValueKind::Maybe,
        _ => ValueKind::Value,
    };
    let local =
        matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version);
    let list = matches!(arg.get_action(), ArgAction::Append);
    let main = Flag { long: arg.get_long().map(str::to_string), short: arg.get_short(), takes, list, local };
    let aliases = arg.get_all_aliases().unwrap_or_default();
    let other = aliases.into_iter().map(|a| Flag { long: Some(a.into()), short: None, ..main.clone() });
    [main.clone()].into_iter().chain(other.collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str], vars: &[(&str, &str)]) -> Result<String, String> {
        let mut root = crate::cli::command();
        root.build();
        let argv = ["haul"].iter().chain(argv).map(OsString::from).collect();
        let env = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        let line = arrange(&root, argv, &env).map_err(|e| e.0)?;
        Ok(line[1..].iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    fn ok(argv: &str, vars: &[(&str, &str)]) -> String {
        run(&argv.split(' ').collect::<Vec<_>>(), vars).unwrap()
    }

    #[test]
    fn flags_go_before_the_command_with_their_values() {
        for (given, arranged) in [
            ("obscure x --transfers 3", "--transfers=3 obscure x"),
            ("obscure -nP x", "--dry-run --progress obscure x"),
            ("--exclude a obscure --exclude -b x", "--exclude=a --exclude=-b obscure x"),
            ("--transfers 1 obscure x --transfers=2", "--transfers=2 obscure x"),
            ("obscure -vvq x -v", "--verbose --verbose --quiet --verbose obscure x"),
            ("obscure -f-x x", "--filter=-x obscure x"),
            ("obscure -c x --checksum=false", "obscure x"),
            ("obscure -c=false x -c", "--checksum obscure x"),
            ("obscure --verbose=2 x", "--verbose --verbose obscure x"),
            ("obscure -- --transfers x", "obscure -- --transfers x"),
            ("obscure -", "obscure -"),
            ("obscure --help", "obscure --help"),
            ("config show --s3-region eu x", "--s3-region=eu config show x"),
        ] {
            if given.contains("s3-region") && !has_option("s3", "region") {
                continue;
            }
            assert_eq!(ok(given, &[]), arranged, "{given}");
        }
    }

    fn has_option(kind: &str, name: &str) -> bool {
        haul_remotes::registry::kind(kind).is_ok_and(|k| k.options.iter().any(|o| o.name == name))
    }

    #[test]
    fn the_environment_stands_before_the_command_line() {
        let vars = [
            ("RCLONE_TRANSFERS", "7"),
            ("HAUL_CHECKERS", "1"),
            ("RCLONE_CHECKERS", "2"),
            ("RCLONE_EXCLUDE", "a,\"b,c\""),
            ("RCLONE_CHECKSUM", "true"),
            ("HAUL_UPDATE", "false"),
            ("RCLONE_UPDATE", "true"),
            ("RCLONE_VERBOSE", "2"),
            ("RCLONE_CONFIG", "/x"),
        ];
        assert_eq!(
            ok("obscure x --exclude d --transfers 8 --checksum=false", &vars),
            "--checkers=1 --exclude=a --exclude=b,c --verbose --verbose --exclude=d --transfers=8 obscure x"
        );
    }

    #[test]
    fn no_command_that_haul_has_is_said_to_be_missing() {
        let root = crate::cli::command();
        for (name, _) in OTHER_NAMES {
            assert!(root.find_subcommand(name).is_none(), "{name}");
        }
    }

    #[test]
    fn flags_that_another_programs_options_replace_are_refused() {
        let refused = |flag: &str, command: &str| {
            format!(
                "{flag} before the word {command} has no effect: \
                 type {command}'s own options after it (haul {command} --help)"
            )
        };
        for (given, flag, command) in [
            ("--exclude x rsync a b", "--exclude", "rsync"),
            ("-c dcp a b", "--checksum", "dcp"),
            ("--config f --max-delete=3 rsync -a a b", "--max-delete", "rsync"),
            ("--transfers 3 dcp a b", "--transfers", "dcp"),
            ("-L rsync a b", "--copy-links", "rsync"),
        ] {
            let words: Vec<&str> = given.split(' ').collect();
            assert_eq!(run(&words, &[]).unwrap_err(), refused(flag, command), "{given}");
        }
        let first = "--config=f --dry-run --bwlimit=1M --max-memory=1G --low-level-retries=1";
        assert_eq!(ok(&format!("{first} rsync --exclude x a b"), &[]), format!("{first} rsync --exclude x a b"));
        // A variable is meant for haul's own commands.
        assert!(ok("rsync a b", &[("HAUL_EXCLUDE", "x")]).ends_with("rsync a b"));
    }

    #[test]
    fn a_commands_own_flags_may_come_before_it() {
        for (early, usual) in [
            ("--combined - check a b", "check --combined - a b"),
            ("--json size a", "size --json a"),
            ("-R lsf a", "lsf -R a"),
            ("--csv -v lsf a", "lsf --csv -v a"),
            ("--format s lsf --format p a", "lsf --format s --format p a"),
        ] {
            assert_eq!(ok(early, &[]), ok(usual, &[]), "{early}");
        }
        let message = run(&["--combined", "-", "ls", "a"], &[]).unwrap_err();
        assert!(message.starts_with("unknown flag --combined (only check, "), "{message}");
        let words = ["--csv", "rsync", "a", "b"];
        assert_eq!(run(&words, &[]).unwrap_err(), "unknown flag --csv (only lsf has it)");
    }

    #[test]
    fn what_is_unknown_gets_the_nearest_name() {
        for (given, message) in [
            ("obscure --transferz 3", "unknown flag --transferz (did you mean --transfers?)"),
            ("obscure --zzzzzz", "unknown flag --zzzzzz (see haul help flags)"),
            ("ls --csv r:", "unknown flag --csv (only lsf has it)"),
            ("ls --base64 r:", "unknown flag --base64 (only hashsum, md5sum and sha1sum have it)"),
            ("obscure -Pz", "unknown flag -z in -Pz (see haul help flags)"),
            ("obscure -z", "unknown flag -z (see haul help flags)"),
            ("copy -rz a b", "unknown flag -r in -rz (all that is below a directory goes along without it)"),
            (
                "sync --delete a b",
                "unknown flag --delete (sync always deletes what only the destination has; copy never does)",
            ),
            ("snapshot ls", "unknown command \"ls\" of haul snapshot (did you mean list?)"),
            ("cp x y", "unknown command \"cp\" (use copy, or copyto to give a file a new name)"),
            ("mount x y", "unknown command \"mount\" (haul doesn't have it; rclone does, with the same remotes)"),
            ("obscur x", "unknown command \"obscur\" (did you mean obscure?)"),
            ("dvc repro", "haul dvc has no repro: use dvc repro, which works in the same repository"),
            ("config shwo", "unknown command \"shwo\" of haul config (did you mean show?)"),
            ("obscure x --transfers", "--transfers needs a value"),
            ("obscure --checksum=maybe x", "--checksum \"maybe\": it must be true or false"),
        ] {
            assert_eq!(run(&given.split(' ').collect::<Vec<_>>(), &[]).unwrap_err(), message, "{given}");
        }
        assert_eq!(
            run(&["obscure", "x"], &[("RCLONE_CHECKSUM", "maybe")]).unwrap_err(),
            "RCLONE_CHECKSUM: --checksum \"maybe\": it must be true or false"
        );
    }
}
