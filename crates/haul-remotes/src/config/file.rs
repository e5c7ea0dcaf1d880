//! The config file's text: sections of `key = value` lines by the rules of rclone.conf, kept line by line so that
//! comments, order and whatever wasn't changed come back as they were.

use std::fmt;

/// A parsed file. Keys before the first section belong to `DEFAULT`.
#[derive(Clone, Debug, Default)]
pub struct Ini {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    raw: String,
    what: LineKind,
}

#[derive(Clone, Debug)]
enum LineKind {
    /// Empty, or a comment.
    Nothing,
    Section(String),
    Pair(String, String),
}

/// A line that can't be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub line: usize,
    /// The problem. Never the line itself, which may hold a secret.
    pub why: &'static str,
}

/// Where keys without a section are, and where `%(name)s` looks first.
const DEFAULT: &str = "DEFAULT";
/// How deep `%(name)s` may nest, so that a loop ends.
const MAX_EXPANSIONS: usize = 200;

impl Ini {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Ini, Malformed> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let line = |(at, raw): (usize, &str)| {
            let what = parse_line(raw.trim()).map_err(|why| Malformed { line: at + 1, why })?;
            Ok(Line { raw: raw.into(), what })
        };
        Ok(Ini { lines: text.lines().enumerate().map(line).collect::<Result<_, _>>()? })
    }

    /// Names of all sections, in order, each once.
    pub fn sections(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in &self.lines {
            if let LineKind::Section(name) = &line.what
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// Is there such a section?
    pub fn has(&self, section: &str) -> bool {
        self.sections().contains(&section)
    }

    /// The keys of a section, in order, each once.
    pub fn keys<'a>(&'a self, section: &str) -> Vec<&'a str> {
        let mut keys: Vec<&'a str> = Vec::new();
        for (_, key, _) in self.pairs(section) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// A value, with `%(name)s` replaced; of repeated keys the last counts.
    pub fn get(&self, section: &str, key: &str) -> Option<String> {
        let mut value = self.raw(section, key)?.to_string();
        for _ in 0..MAX_EXPANSIONS {
            let Some((from, to)) = reference(&value) else { break };
            let name = &value[from + 2..to - 2];
            // rclone looks in DEFAULT first; what isn't found anywhere is nothing.
            let found = self.raw(DEFAULT, name).or_else(|| self.raw(section, name)).unwrap_or_default().to_string();
            value.replace_range(from..to, &found);
        }
        Some(value)
    }

    /// Sets a value, in place when the key is there, else after the section's last key; a new section goes to the
    /// end.
    ///
    /// Errors: a key or value that a line can't hold.
    pub fn set(&mut self, section: &str, key: &str, value: &str) -> Result<(), String> {
        let raw = format!("{} = {}", quote_key(key)?, quote_value(value)?);
        let new = Line { raw, what: LineKind::Pair(key.into(), value.into()) };
        let last = self.pairs(section).filter(|(_, k, _)| *k == key).map(|(at, ..)| at).last();
        if let Some(at) = last {
            self.lines[at] = new;
            return Ok(());
        }
        self.add_section(section);
        let at = self.end_of(section);
        self.lines.insert(at, new);
        Ok(())
    }

    /// Adds an empty section at the end, unless it is there.
    pub fn add_section(&mut self, section: &str) {
        if self.has(section) {
            return;
        }
        if self.lines.last().is_some_and(|l| !l.raw.trim().is_empty()) {
            self.lines.push(Line { raw: String::new(), what: LineKind::Nothing });
        }
        self.lines.push(Line { raw: format!("[{section}]"), what: LineKind::Section(section.into()) });
    }

    /// Removes a key; true when it was there.
    pub fn remove(&mut self, section: &str, key: &str) -> bool {
        let gone: Vec<usize> = self.pairs(section).filter(|(_, k, _)| *k == key).map(|(at, ..)| at).collect();
        for at in gone.iter().rev() {
            self.lines.remove(*at);
        }
        !gone.is_empty()
    }

    /// Removes a section with all that is in it; true when it was there. Comments before it stay.
    pub fn remove_section(&mut self, section: &str) -> bool {
        let before = self.lines.len();
        let mut inside = false;
        self.lines.retain(|line| {
            if let LineKind::Section(name) = &line.what {
                inside = name == section;
            }
            !inside
        });
        self.lines.len() != before
    }

    /// Gives a section another name; true when it was there.
    pub fn rename_section(&mut self, from: &str, to: &str) -> bool {
        let mut found = false;
        for line in &mut self.lines {
            if matches!(&line.what, LineKind::Section(name) if name == from) {
                *line = Line { raw: format!("[{to}]"), what: LineKind::Section(to.into()) };
                found = true;
            }
        }
        found
    }

    fn raw<'a>(&'a self, section: &str, key: &str) -> Option<&'a str> {
        self.pairs(section).filter(|(_, k, _)| *k == key).map(|(.., value)| value).last()
    }

    fn pairs<'a, 'b>(&'a self, section: &'b str) -> impl Iterator<Item = (usize, &'a str, &'a str)> + use<'a, 'b> {
        let mut inside = section == DEFAULT;
        self.lines.iter().enumerate().filter_map(move |(at, line)| match &line.what {
            LineKind::Section(name) => {
                inside = name == section;
                None
            }
            LineKind::Pair(key, value) if inside => Some((at, key.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// Where a new key of this section goes: after its last key, or after its header.
    fn end_of(&self, section: &str) -> usize {
        let header = |line: &Line| matches!(&line.what, LineKind::Section(name) if name == section);
        let last = self.pairs(section).map(|(at, ..)| at).last();
        last.or_else(|| self.lines.iter().position(header)).map_or(0, |at| at + 1)
    }
}

impl fmt::Display for Ini {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.raw))
    }
}

fn parse_line(line: &str) -> Result<LineKind, &'static str> {
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(LineKind::Nothing);
    }
    if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
        return match name.trim() {
            "" => Err("the section has no name"),
            name => Ok(LineKind::Section(name.into())),
        };
    }
    let (key, rest) = split_key(line)?;
    Ok(LineKind::Pair(key.into(), value(rest.trim())?.into()))
}

fn split_key(line: &str) -> Result<(&str, &str), &'static str> {
    let quote = match line {
        l if l.starts_with("\"\"\"") && l.len() >= 6 => "\"\"\"",
        l if l.starts_with('"') => "\"",
        l if l.starts_with('`') => "`",
        _ => {
            let at = line.find(['=', ':']).filter(|at| *at > 0);
            let at = at.ok_or("expected [section], a comment or key = value")?;
            return Ok((line[..at].trim(), &line[at + 1..]));
        }
    };
    let body = &line[quote.len()..];
    let end = body.find(quote).ok_or("the key's closing quote is missing")?;
    let rest = &body[end..];
    let at = rest.find(['=', ':']).ok_or("= is missing after the key")?;
    Ok((&body[..end], &rest[at + 1..]))
}

/// A backquote or three double quotes around a value keep what is inside; a plain double quote is part of the value.
fn value(text: &str) -> Result<&str, &'static str> {
    let quote = match text {
        t if t.starts_with('`') && t.len() >= 2 => "`",
        t if t.starts_with("\"\"\"") && t.len() >= 6 => "\"\"\"",
        t => return Ok(t),
    };
    let body = &text[quote.len()..];
    let end = body.rfind(quote).ok_or("the value's closing quote is missing")?;
    Ok(&body[..end])
}

/// The first `%(name)s` in a value: where it starts and ends.
fn reference(value: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let start = from + value[from..].find("%(")?;
        let close = start + value[start..].find(')')?;
        if close > start + 2 && value[close + 1..].starts_with('s') {
            return Some((start, close + 2));
        }
        from = start + 2;
    }
}

fn quote_key(key: &str) -> Result<String, String> {
    let plain = !key.is_empty()
        && key.trim() == key
        && !key.contains(['=', ':', '\n', '\r'])
        && !key.starts_with(['[', '#', ';', '"', '`']);
    if plain {
        return Ok(key.into());
    }
    if key.is_empty() || key.contains(['\n', '\r', '`']) {
        return Err(format!("{key:?} can't be the name of an option"));
    }
    Ok(format!("`{key}`"))
}

fn quote_value(value: &str) -> Result<String, String> {
    if value.contains(['\n', '\r']) {
        return Err("a value can't hold a line break".into());
    }
    let plain = value.trim() == value && !value.starts_with('`') && !value.starts_with("\"\"\"");
    if plain {
        return Ok(value.into());
    }
    if value.contains('`') { Ok(format!("\"\"\"{value}\"\"\"")) } else { Ok(format!("`{value}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, String, String)> {
        let ini = Ini::parse(text).unwrap();
        let mut sections = vec![DEFAULT];
        sections.extend(ini.sections().into_iter().filter(|s| *s != DEFAULT));
        let of = |s: &str| -> Vec<_> {
            ini.keys(s).iter().map(|k| (s.to_string(), k.to_string(), ini.get(s, k).unwrap())).collect()
        };
        sections.into_iter().flat_map(of).collect()
    }

    fn one(line: &str) -> (String, String) {
        let (_, key, value) = all(&format!("[s]\n{line}\n")).remove(0);
        (key, value)
    }

    /// Each of these was put to rclone 1.75's `config dump` first.
    #[test]
    fn lines_are_read_as_rclone_reads_them() {
        for (line, key, value) in [
            ("type = s3", "type", "s3"),
            ("  type=s3  ", "type", "s3"),
            ("key:colon = 5", "key", "colon = 5"),
            ("other: v1", "other", "v1"),
            ("bq = `  a = b `", "bq", "  a = b "),
            ("bq = `a`b`", "bq", "a`b"),
            ("tq = \"\"\" q\"x \"\"\"", "tq", " q\"x "),
            ("dq = \"plain\"", "dq", "\"plain\""),
            ("path = C:\\dir\\n", "path", "C:\\dir\\n"),
            ("hash = a # b ; c", "hash", "a # b ; c"),
            ("empty =", "empty", ""),
            ("`a=b` = c", "a=b", "c"),
            ("\"a:b\" = c", "a:b", "c"),
            ("url = http://x:9/?a=b", "url", "http://x:9/?a=b"),
            ("lone = `", "lone", "`"),
        ] {
            assert_eq!(one(line), (key.into(), value.into()), "{line}");
        }
    }

    #[test]
    fn references_look_in_default_first() {
        let text = "[a]\nx = %(y)s-%(z)s-%(nope)s\ny = ysame\nz = z1\nz = z2\nw = %(y2)s\ny2 = %(w)s!\nraw = 100%()s %(\n\
                    [DEFAULT]\nz = zdef\n";
        let ini = Ini::parse(text).unwrap();
        assert_eq!(ini.get("a", "x").unwrap(), "ysame-zdef-");
        assert_eq!(ini.get("a", "z").unwrap(), "z2");
        assert_eq!(ini.get("a", "raw").unwrap(), "100%()s %(");
        assert!(ini.get("a", "w").unwrap().starts_with("%("), "a loop ends");
    }

    #[test]
    fn what_comes_before_a_section_is_default() {
        assert_eq!(
            all("x = 1\n[a]\ny = 2\n"),
            [("DEFAULT".into(), "x".into(), "1".into()), ("a".into(), "y".into(), "2".into())]
        );
    }

    #[test]
    fn a_bad_line_is_known_by_its_number_and_not_shown() {
        for (text, line, why) in [
            ("[a]\ntype = s3\nsecret\n", 3, "expected [section], a comment or key = value"),
            ("[a\n", 1, "expected [section], a comment or key = value"),
            ("[]\n", 1, "the section has no name"),
            ("= x\n", 1, "expected [section], a comment or key = value"),
            ("a = `b\n", 1, "the value's closing quote is missing"),
            ("`a = b\n", 1, "the key's closing quote is missing"),
        ] {
            assert_eq!(Ini::parse(text).unwrap_err(), Malformed { line, why }, "{text}");
        }
    }

    #[test]
    fn a_change_keeps_all_the_rest() {
        let text = "# top\n[a]\ntype =   s3\n; why\nkey: old\n\n# of b\n[b]\ntype=local\n";
        let mut ini = Ini::parse(text).unwrap();
        ini.set("a", "key", "new").unwrap();
        ini.set("a", "more", " x ").unwrap();
        ini.set("c", "type", "`q").unwrap();
        assert!(ini.remove("b", "type"));
        assert_eq!(
            ini.to_string(),
            "# top\n[a]\ntype =   s3\n; why\nkey = new\nmore = ` x `\n\n# of b\n[b]\n\n[c]\ntype = \"\"\"`q\"\"\"\n"
        );
        let again = Ini::parse(&ini.to_string()).unwrap();
        assert_eq!(again.get("a", "more").unwrap(), " x ");
        assert_eq!(again.get("c", "type").unwrap(), "`q");
        ini.remove_section("a");
        ini.rename_section("b", "d");
        assert_eq!(ini.to_string(), "# top\n[d]\n\n[c]\ntype = \"\"\"`q\"\"\"\n");
        assert!(ini.set("c", "k", "a\nb").is_err());
    }

    #[test]
    fn values_survive_writing_and_reading() {
        for value in [
            "",
            "a",
            " a",
            "a ",
            "`",
            "``",
            "`a",
            "a`",
            "\"\"\"a\"\"\"",
            "\"a\"",
            "a=b:c",
            "# no",
            "[x]",
            "\"\"\"`\"\"\"",
        ] {
            let mut ini = Ini::default();
            ini.set("s", "k", value).unwrap();
            let text = ini.to_string();
            assert_eq!(Ini::parse(&text).unwrap().get("s", "k").as_deref(), Some(value), "{text}");
        }
    }
}
