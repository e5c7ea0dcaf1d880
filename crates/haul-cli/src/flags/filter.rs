//! Flags about which files a job is about; they become a [`FilterSpec`] in rclone's order of rules.

use super::values::size;
use crate::error::usage;
use anyhow::{Context as _, Result};
use haul_core::{
    Mtime,
    filter::{FilterSpec, Limits, Partition},
    units::{Size, parse_age},
};
use jiff::{Timestamp, tz::TimeZone};
use std::{
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::Read as _,
};

/// Which files.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter")]
pub struct FilterFlags {
    /// Delete files at the destination that the filter excludes
    #[arg(long)]
    pub delete_excluded: bool,
    /// Exclude files matching this pattern (may repeat)
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Read exclude patterns from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<String>,
    /// Exclude directories that contain a file of this name (may repeat)
    #[arg(long, value_name = "NAME")]
    pub exclude_if_present: Vec<String>,
    /// Only the files listed in this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub files_from: Vec<String>,
    /// Like --files-from, but lines are taken verbatim: no comments, no trimming (may repeat)
    #[arg(long, value_name = "FILE")]
    pub files_from_raw: Vec<String>,
    /// Like --files-from-raw, with names separated by NUL (may repeat)
    #[arg(long, value_name = "FILE")]
    pub files_from0: Vec<String>,
    /// Add a rule: + pattern, - pattern, or ! to clear (may repeat)
    #[arg(long, short = 'f', value_name = "RULE")]
    pub filter: Vec<String>,
    /// Read rules from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub filter_from: Vec<String>,
    /// Only part K of N parts of all files, chosen by a hash of their names: 1/4; @/N picks one at random
    #[arg(long, value_name = "K/N", value_parser = part)]
    pub hash_filter: Option<Partition>,
    /// Match patterns case-insensitively
    #[arg(long)]
    pub ignore_case: bool,
    /// Only include files matching this pattern (may repeat)
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Read include patterns from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub include_from: Vec<String>,
    /// Only files modified within this time: 2d, or since a date
    #[arg(long, value_name = "AGE")]
    pub max_age: Option<String>,
    /// Recurse at most this many levels; 1 is the top level only
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_depth: Option<i64>,
    /// Only files of at most this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<Size>,
    /// Exclude files with metadata matching this pattern of key=value (may repeat)
    #[arg(long, value_name = "PATTERN")]
    pub metadata_exclude: Vec<String>,
    /// Read metadata exclude patterns from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub metadata_exclude_from: Vec<String>,
    /// Add a rule on metadata: + pattern, - pattern, or ! to clear (may repeat)
    #[arg(long, value_name = "RULE")]
    pub metadata_filter: Vec<String>,
    /// Read rules on metadata from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub metadata_filter_from: Vec<String>,
    /// Only include files with metadata matching this pattern of key=value (may repeat)
    #[arg(long, value_name = "PATTERN")]
    pub metadata_include: Vec<String>,
    /// Read metadata include patterns from this file; - is standard input (may repeat)
    #[arg(long, value_name = "FILE")]
    pub metadata_include_from: Vec<String>,
    /// Only files not modified within this time: 2d, or before a date
    #[arg(long, value_name = "AGE")]
    pub min_age: Option<String>,
    /// Only files of at least this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub min_size: Option<Size>,
    /// Skip file systems that are mounted below the source or the destination
    #[arg(long, short = 'x')]
    pub one_file_system: bool,
}

/// `--hash-filter`; the part by chance is the same for the whole run.
fn part(text: &str) -> Result<Partition, String> {
    Partition::parse(text, || RandomState::new().hash_one(text))
}

/// Rules as a set of flags gives them, on names or on metadata.
struct RuleFlags<'a> {
    include: &'a [String],
    include_from: &'a [String],
    exclude: &'a [String],
    exclude_from: &'a [String],
    filter: &'a [String],
    filter_from: &'a [String],
}

/// The filter of the flags, in the order in which they count: include, include-from, exclude, exclude-from, filter,
/// filter-from; an include leaves out every file that no rule names. Reads the files that the flags name.
pub fn filter(flags: &super::Flags) -> Result<FilterSpec> {
    let flags = &flags.filter;
    let now = Timestamp::now();
    let spec = FilterSpec {
        limits: Limits::Exclude,
        rules: rules(&on_names(flags))?,
        meta_rules: rules(&on_metadata(flags))?,
        partition: flags.hash_filter,
        files_from: files_from(flags)?,
        min_size: super::values::bytes(flags.min_size),
        max_size: super::values::bytes(flags.max_size),
        newer_than: age("--max-age", flags.max_age.as_deref(), now)?,
        older_than: age("--min-age", flags.min_age.as_deref(), now)?,
        ignore_case: flags.ignore_case,
        exclude_if_present: flags.exclude_if_present.clone(),
    };
    check(&spec)?;
    Ok(spec)
}

/// `--max-depth`; negative and 0 mean no limit, as in rclone.
pub fn max_depth(flags: &FilterFlags) -> Result<Option<usize>> {
    match flags.max_depth {
        Some(depth) if depth > 0 => Ok(Some(usize::try_from(depth)?)),
        _ => Ok(None),
    }
}

fn check(spec: &FilterSpec) -> Result<()> {
    let others = !spec.rules.is_empty()
        || spec.min_size.is_some()
        || spec.max_size.is_some()
        || spec.newer_than.is_some()
        || spec.older_than.is_some()
        || spec.partition.is_some()
        || !spec.meta_rules.is_empty()
        || !spec.exclude_if_present.is_empty();
    if spec.files_from.is_some() && others {
        return Err(usage("--files-from lists the exact files: it can't be combined with other filters"));
    }
    Ok(())
}

fn on_names(flags: &FilterFlags) -> RuleFlags<'_> {
    RuleFlags {
        include: &flags.include,
        include_from: &flags.include_from,
        exclude: &flags.exclude,
        exclude_from: &flags.exclude_from,
        filter: &flags.filter,
        filter_from: &flags.filter_from,
    }
}

fn on_metadata(flags: &FilterFlags) -> RuleFlags<'_> {
    RuleFlags {
        include: &flags.metadata_include,
        include_from: &flags.metadata_include_from,
        exclude: &flags.metadata_exclude,
        exclude_from: &flags.metadata_exclude_from,
        filter: &flags.metadata_filter,
        filter_from: &flags.metadata_filter_from,
    }
}

fn rules(flags: &RuleFlags<'_>) -> Result<Vec<String>> {
    let mut rules = Vec::new();
    let from = |rules: &mut Vec<String>, sign: &str, patterns: &[String], files: &[String]| -> Result<()> {
        // Mostly a variable of a script that isn't set: it must mean neither nothing nor everything.
        if patterns.iter().any(|pattern| pattern.trim().is_empty()) {
            return Err(match sign {
                "+ " => usage("an include pattern is empty: leave the flag out, or write \"**\" for everything"),
                "- " => usage("an exclude pattern is empty, and would protect nothing: leave the flag out"),
                _ => usage("a filter rule is empty: leave the flag out"),
            });
        }
        for pattern in patterns {
            rules.push(format!("{sign}{pattern}"));
            // rclone drops a blank at the end, if not always: it may come from a script by mistake, and what is left out stays so.
            if sign == "- " && pattern.trim_end() != pattern {
                rules.push(format!("- {}", pattern.trim_end()));
            }
        }
        for file in files {
            rules.extend(lines(file)?.into_iter().map(|line| format!("{sign}{line}")));
        }
        Ok(())
    };
    from(&mut rules, "+ ", flags.include, flags.include_from)?;
    from(&mut rules, "- ", flags.exclude, flags.exclude_from)?;
    from(&mut rules, "", flags.filter, flags.filter_from)?;
    if !flags.include.is_empty() || !flags.include_from.is_empty() {
        if !flags.exclude.is_empty() || !flags.exclude_from.is_empty() {
            tracing::warn!(
                "With both --include and --exclude the includes count first: --filter says the order plainly"
            );
        }
        rules.push("- /**".into());
    }
    Ok(rules)
}

fn files_from(flags: &FilterFlags) -> Result<Option<Vec<Vec<u8>>>> {
    if flags.files_from.is_empty() && flags.files_from_raw.is_empty() && flags.files_from0.is_empty() {
        return Ok(None);
    }
    let mut names = Vec::new();
    for file in &flags.files_from {
        names.extend(text(file)?.split(|b| *b == b'\n').filter_map(|line| meant(line).map(<[u8]>::to_vec)));
    }
    for (files, end) in [(&flags.files_from_raw, b'\n'), (&flags.files_from0, 0)] {
        for file in files {
            let content = content(file)?;
            // As rclone: a line may end as on Windows.
            let name = |line: &'_ [u8]| match line.strip_suffix(b"\r") {
                Some(name) if end == b'\n' => name.to_vec(),
                _ => line.to_vec(),
            };
            names.extend(content.split(|b| *b == end).map(name).filter(|name| !name.is_empty()));
        }
    }
    Ok(Some(names))
}

/// The rules in a file: no empty lines, no comments.
fn lines(file: &str) -> Result<Vec<String>> {
    let content = text(file)?;
    let line = |line: &[u8]| {
        if line.contains(&0) {
            return Err(usage(format!("{file}: a rule holds a zero byte: write one rule a line, in UTF-8")));
        }
        std::str::from_utf8(line).map(str::to_string).with_context(|| format!("{file}: a rule isn't UTF-8"))
    };
    content.split(|b| *b == b'\n').filter_map(meant).map(line).collect()
}

/// A line without the space around it; nothing when it is empty or a comment.
fn meant(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii();
    let comment = line.is_empty() || line.starts_with(b"#") || line.starts_with(b";");
    (!comment).then_some(line)
}

/// The content of a file of lines, without the mark that some editors begin texts with: it would belong to the first line.
fn text(file: &str) -> Result<Vec<u8>> {
    let mut bytes = content(file)?;
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

fn content(file: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut bytes).context("can't read standard input")?;
        return Ok(bytes);
    }
    let path = super::values::path(file).map_err(usage)?;
    File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).with_context(|| format!("can't read {file}"))?;
    Ok(bytes)
}

fn age(flag: &str, text: Option<&str>, now: Timestamp) -> Result<Option<Mtime>> {
    let Some(text) = text else { return Ok(None) };
    parse_age(text, Mtime(now.as_nanosecond()), &TimeZone::system()).map_err(|e| usage(format!("{flag}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(text: &[u8]) -> (tempfile::NamedTempFile, String) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let path = file.path().to_str().unwrap().to_string();
        (file, path)
    }

    #[test]
    fn rules_stand_in_rclones_order() {
        let (_a, include_from) = file(b"# comment\n i2 \n\n; comment\n");
        let (_b, exclude_from) = file(b"e2\r\n");
        let (_c, filter_from) = file(b"+ f2\n!\n");
        let flags = FilterFlags {
            filter: vec!["- f1".into()],
            filter_from: vec![filter_from],
            exclude: vec!["e1".into()],
            exclude_from: vec![exclude_from],
            include: vec!["i1".into()],
            include_from: vec![include_from],
            ..Default::default()
        };
        assert_eq!(rules(&on_names(&flags)).unwrap(), ["+ i1", "+ i2", "- e1", "- e2", "- f1", "+ f2", "!", "- /**"]);
    }

    #[test]
    fn lists_of_files_keep_their_bytes() {
        let (_a, plain) = file(b"a\n # no\n b \n\xff\n");
        let (_b, raw) = file(b" c \n#d\r\n\r\n\n");
        let (_c, nul) = file(b"e\nf\0g\r\0");
        let flags = FilterFlags {
            files_from: vec![plain],
            files_from_raw: vec![raw],
            files_from0: vec![nul],
            ..Default::default()
        };
        let names = files_from(&flags).unwrap().unwrap();
        let want: [&[u8]; 7] = [b"a", b"b", b"\xff", b" c ", b"#d", b"e\nf", b"g\r"];
        assert_eq!(names, want);
    }

    #[test]
    fn a_missing_list_is_named() {
        let flags = FilterFlags { exclude_from: vec!["/nosuch/rules".into()], ..Default::default() };
        assert_eq!(
            format!("{:#}", rules(&on_names(&flags)).unwrap_err()),
            "can't read /nosuch/rules: No such file or directory (os error 2)"
        );
    }
}
