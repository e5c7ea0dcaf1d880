//! Output beside errors: rsync's levels (`--info`), as `-v`, `-P`, `--stats` and `-q` set them. Pure.

/// rsync's flags of `--info`, with the number of `-v` that enables each; level 2 of one comes with the second `-v`.
const FLAGS: &[(&str, u8, &str)] = &[
    ("backup", 2, "changes nothing"),
    ("copy", 1, "changes nothing"),
    ("del", 1, "deletions"),
    ("flist", 1, "that the work begins"),
    ("misc", 1, "changes nothing"),
    ("mount", 2, "changes nothing"),
    ("name", 1, "names of what is transferred; 2: of what is not, too"),
    ("nonreg", 0, "skipped files that are no file, directory or symlink"),
    ("progress", u8::MAX, "each file as it arrives; 2: one line for all"),
    ("remove", 2, "files of the source that are deleted"),
    ("skip", 2, "what options leave as it is"),
    ("stats", 1, "how much moved; 2: all counts"),
    ("symsafe", 1, "changes nothing"),
];

/// Output of `--debug=help`.
pub const DEBUG_HELP: &str = "--debug changes nothing. To see what haul does, write: haul -vv rsync ...\n";

/// Output of `--info=help`.
pub fn help() -> String {
    let mut text = String::from("--info=NAME,... shows; NAME2 shows more, NAME0 nothing:\n");
    for (flag, from, what) in FLAGS {
        let from = match from {
            0 => " (always)",
            1 => " (-v)",
            2 => " (-vv)",
            _ => "",
        };
        text.push_str(&format!("  {flag:<10}{what}{from}\n"));
    }
    text.push_str("  all       all of these\n  none      none of these\n  help      this\n");
    text
}

/// Levels of the flags that haul supports; 0 is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Deletions.
    pub del: u8,
    /// The start of the work.
    pub flist: u8,
    /// 1: names of transferred files, and of symlinks that are left out; 2: of the others too.
    pub name: u8,
    /// Names that aren't transferred, as they are no file, directory or other supported kind.
    pub nonreg: u8,
    /// 1: each file; 2: one line for all.
    pub progress: u8,
    /// Files of the source that are deleted, as they have arrived.
    pub remove: u8,
    /// Files skipped because of options.
    pub skip: u8,
    /// 1: how much moved; 2: all counts.
    pub stats: u8,
}

/// The options that set the levels.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelOptions<'a> {
    /// `-q`.
    pub quiet: bool,
    /// How many `-v`s.
    pub verbose: u8,
    /// `--progress`.
    pub progress: bool,
    /// `--stats`.
    pub stats: bool,
    /// Levels that `--info` sets, in order.
    pub levels: &'a [(&'static str, u8)],
}

impl Info {
    /// Levels set by the options.
    pub fn of(asked: LevelOptions<'_>) -> Info {
        let LevelOptions { quiet, verbose, progress, stats, levels } = asked;
        if quiet {
            return Info::default();
        }
        let mut info = Info { nonreg: 1, ..Info::default() };
        for (flag, from, _) in FLAGS {
            if verbose >= *from {
                info.set(flag, 1);
            }
        }
        if verbose > 1 {
            info.name = 2;
        }
        if progress {
            (info.progress, info.name, info.flist) = (1, info.name.max(1), info.flist.max(1));
        }
        if stats {
            info.stats = 2;
        }
        for (flag, level) in levels {
            info.set(flag, *level);
        }
        info
    }

    fn set(&mut self, flag: &str, level: u8) {
        match flag {
            "del" => self.del = level,
            "flist" => self.flist = level,
            "name" => self.name = level,
            "nonreg" => self.nonreg = level,
            "progress" => self.progress = level,
            "remove" => self.remove = level,
            "skip" => self.skip = level,
            "stats" => self.stats = level,
            // The others are of messages that haul doesn't print.
            _ => {}
        }
    }
}

/// The levels that the value of an `--info` sets, in order.
///
/// Errors: the word that is none.
pub fn parse(text: &str) -> Result<Vec<(&'static str, u8)>, String> {
    let mut set = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        let name = lower.trim_end_matches(|c: char| c.is_ascii_digit());
        let level = match &lower[name.len()..] {
            "" => 1,
            digits => digits.parse().unwrap_or(u8::MAX),
        };
        match (name, FLAGS.iter().find(|(flag, ..)| *flag == name)) {
            (_, Some((flag, ..))) => set.push((*flag, level)),
            ("all", None) => set.extend(FLAGS.iter().map(|(flag, ..)| (*flag, level))),
            ("none", None) => set.extend(FLAGS.iter().map(|(flag, ..)| (*flag, 0))),
            _ => return Err(format!("Unknown --info item: \"{word}\"")),
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_rsync() {
        let of = |verbose, info: &str| {
            Info::of(LevelOptions { verbose, levels: &parse(info).unwrap(), ..LevelOptions::default() })
        };
        let quiet = Info { nonreg: 1, ..Info::default() };
        assert_eq!(of(0, ""), quiet);
        let one = Info { del: 1, flist: 1, name: 1, stats: 1, ..quiet };
        assert_eq!(of(1, ""), one);
        assert_eq!(of(2, ""), Info { name: 2, remove: 1, skip: 1, ..one });
        assert_eq!(of(0, "NAME,del2"), Info { name: 1, del: 2, ..quiet });
        assert_eq!(of(1, "name0,stats2"), Info { name: 0, stats: 2, ..one });
        assert_eq!(of(2, "none"), Info::default());
        assert_eq!(of(2, "all0,progress2,backup"), Info { progress: 2, ..Info::default() });
        let options = LevelOptions { verbose: 2, progress: true, quiet: true, ..LevelOptions::default() };
        assert_eq!(Info::of(options), Info::default());
        let options = LevelOptions { progress: true, stats: true, ..LevelOptions::default() };
        assert_eq!(Info::of(options), Info { progress: 1, name: 1, flist: 1, stats: 2, ..quiet });
        assert_eq!(parse("name,bogus3").unwrap_err(), "Unknown --info item: \"bogus3\"");
    }
}
