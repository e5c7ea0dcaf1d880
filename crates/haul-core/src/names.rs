//! Other names for files and directories on their way to the destination (`--name-transform`): rclone's transformations, in the
//! order in which they were given, each of one part of a path at a time.

use crate::encoding::Encoding;
use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

/// Renaming steps.
#[derive(Clone, Debug)]
pub struct NewNames(Vec<Step>);

#[derive(Clone, Debug)]
struct Step {
    of: PathPart,
    change: Change,
}

/// The parts of a path that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPart {
    /// The last part of files.
    File,
    /// Directories, on the way to a file too.
    Dir,
    /// All.
    All,
}

#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Replace(String, String),
    Prefix(String),
    Suffix(String),
    SuffixKeepExtension(String),
    TrimPrefix(String),
    TrimSuffix(String),
    Truncate { most: usize, bytes: bool, keep_extension: bool },
    ToBase64,
    FromBase64,
    Encode(Encoding),
    Decode(Encoding),
    Lower,
    Upper,
    Ascii,
    Url,
    Regex(Regex, String),
}

/// Characters that need no escape in a URL's query.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl NewNames {
    /// Reads transformations such as `prefix=old_` or `all,nfc`; what stands before the comma says of what: `file` (the last part of
    /// files, if nothing is said), `dir` or `all`.
    pub fn parse(texts: &[String]) -> Result<NewNames, String> {
        let steps = texts.iter().filter(|text| !text.is_empty()).map(|text| {
            let (of, change) = [("file,", PathPart::File), ("dir,", PathPart::Dir), ("all,", PathPart::All)]
                .into_iter()
                .find_map(|(tag, of)| Some((of, text.strip_prefix(tag)?)))
                .unwrap_or((PathPart::File, text));
            Ok(Step { of, change: Change::parse(change).map_err(|why| format!("{text:?}: {why}"))? })
        });
        steps.collect::<Result<_, String>>().map(NewNames)
    }

    /// The new path of a file, or of a directory.
    ///
    /// Errors: a name that would be empty, have a slash, or stand for another directory; one that can't be changed so.
    pub fn of(&self, path: &str, is_dir: bool) -> Result<String, String> {
        let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        for step in &self.0 {
            let last = parts.len() - 1;
            let changed = match (step.of, is_dir) {
                (PathPart::File, true) => continue,
                (PathPart::File, false) => &mut parts[last..],
                (PathPart::Dir, false) => &mut parts[..last],
                (PathPart::Dir, true) | (PathPart::All, _) => &mut parts[..],
            };
            for part in changed {
                let new = step.change.of(part)?;
                if new.trim().is_empty() || new.contains(['/', '\0']) || matches!(new.as_str(), "." | "..") {
                    return Err(format!("{part:?} would become {new:?}, which can't be a name"));
                }
                *part = new;
            }
        }
        Ok(parts.join("/"))
    }
}

impl Change {
    fn parse(text: &str) -> Result<Change, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let needs = || value.map(str::to_owned).ok_or_else(|| format!("{name} needs a value: {name}=…"));
        let truncate = |bytes: bool, keep_extension: bool| -> Result<Change, String> {
            let text = needs()?;
            let most = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
            Ok(Change::Truncate { most, bytes, keep_extension })
        };
        let encoding =
            || -> Result<Encoding, String> { Encoding::parse(&needs()?).map_err(|e| e.message().to_owned()) };
        Ok(match name.to_ascii_lowercase().as_str() {
            "none" => Change::Nothing,
            "nfc" => Change::Nfc,
            "nfd" => Change::Nfd,
            "nfkc" => Change::Nfkc,
            "nfkd" => Change::Nfkd,
            "replace" => match needs()?.split(':').collect::<Vec<_>>()[..] {
                [old, new] => Change::Replace(old.into(), new.into()),
                _ => return Err("write replace=OLD:NEW".into()),
            },
            "prefix" => Change::Prefix(needs()?),
            "suffix" => Change::Suffix(needs()?),
            "suffix_keep_extension" => Change::SuffixKeepExtension(needs()?),
            "trimprefix" => Change::TrimPrefix(needs()?),
            "trimsuffix" => Change::TrimSuffix(needs()?),
            "truncate" => truncate(false, false)?,
            "truncate_keep_extension" => truncate(false, true)?,
            "truncate_bytes" => truncate(true, false)?,
            "truncate_bytes_keep_extension" => truncate(true, true)?,
            "base64encode" => Change::ToBase64,
            "base64decode" => Change::FromBase64,
            "encoder" => Change::Encode(encoding()?),
            "decoder" => Change::Decode(encoding()?),
            "lowercase" => Change::Lower,
            // rclone's title case is of the whole name, not of its words.
            "uppercase" | "titlecase" => Change::Upper,
            "ascii" => Change::Ascii,
            "url" => Change::Url,
            "regex" => match needs()?.split('/').collect::<Vec<_>>()[..] {
                [pattern, new] => {
                    let regex = Regex::new(pattern).map_err(|_| format!("{pattern:?} isn't a regular expression"))?;
                    Change::Regex(regex, new.into())
                }
                _ => return Err("write regex=PATTERN/NEW".into()),
            },
            _ => return Err(format!("haul has no transformation {name}")),
        })
    }

    /// The new name for one part of a path.
    fn of(&self, name: &str) -> Result<String, String> {
        Ok(match self {
            Change::Nothing => name.to_owned(),
            Change::Nfc => name.nfc().collect(),
            Change::Nfd => name.nfd().collect(),
            Change::Nfkc => name.nfkc().collect(),
            Change::Nfkd => name.nfkd().collect(),
            Change::Replace(old, new) => name.replace(old, new),
            Change::Prefix(prefix) => format!("{prefix}{name}"),
            Change::Suffix(suffix) => format!("{name}{suffix}"),
            Change::SuffixKeepExtension(suffix) => {
                let (stem, extension) = split_extension(name);
                format!("{stem}{suffix}{extension}")
            }
            Change::TrimPrefix(prefix) => name.strip_prefix(prefix.as_str()).unwrap_or(name).to_owned(),
            Change::TrimSuffix(suffix) => name.strip_suffix(suffix.as_str()).unwrap_or(name).to_owned(),
            Change::Truncate { most, bytes, keep_extension } => truncate(name, *most, *bytes, *keep_extension)?,
            Change::ToBase64 => URL_SAFE.encode(name),
            Change::FromBase64 if name == ".DS_Store" => name.to_owned(),
            Change::FromBase64 => {
                let bytes = URL_SAFE.decode(name).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                bytes.ok_or_else(|| format!("{name:?} isn't the Base64 of a name"))?
            }
            Change::Encode(encoding) => encoding.encode_text(name.as_bytes()).unwrap_or_default(),
            Change::Decode(encoding) => String::from_utf8_lossy(&encoding.decode(name.as_bytes())).into_owned(),
            Change::Lower => name.chars().map(lower).collect(),
            Change::Upper => name.chars().map(upper).collect(),
            Change::Ascii => name.chars().filter(char::is_ascii).collect(),
            Change::Url => percent_encode(name.as_bytes(), KEPT).to_string().replace("%20", "+"),
            Change::Regex(regex, new) => regex.replace_all(name, new.as_str()).into_owned(),
        })
    }
}

/// A name as a store sees it that ignores case or Unicode composition: composed, and each character lower-cased
/// separately, as rclone does. A byte that isn't part of a character becomes `U+FFFD`.
pub fn folded(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.extend(chunk.valid().nfc());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text.chars().map(lower).collect()
}

fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// One character for one: `ß` has no such.
fn upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// A name's stem and its extension.
fn split_extension(name: &str) -> (&str, &str) {
    name.split_at(name.len() - extension(name.as_bytes()).len())
}

/// A name's extension, with those before it that are known: `.tar.gz`; all of a name that begins with its last dot, as in rclone.
pub fn extension(name: &[u8]) -> &[u8] {
    /// Extensions that stand before another one, for all that is compressed or encrypted.
    const INNER: [&[u8]; 12] =
        [b".tar", b".json", b".csv", b".txt", b".xml", b".html", b".js", b".css", b".svg", b".sql", b".log", b".pdf"];
    let before = |name: &[u8]| name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len());
    let mut at = before(name);
    loop {
        let inner = before(&name[..at]);
        if !INNER.contains(&&name[inner..at]) {
            return &name[at..];
        }
        at = inner;
    }
}

fn truncate(name: &str, most: usize, bytes: bool, keep_extension: bool) -> Result<String, String> {
    let len = |text: &str| if bytes { text.len() } else { text.chars().count() };
    if most == 0 || len(name) <= most {
        return Ok(name.to_owned());
    }
    let (stem, extension) = if keep_extension { split_extension(name) } else { (name, "") };
    let room = most.saturating_sub(len(extension));
    let end = match bytes {
        true => stem.floor_char_boundary(room),
        false => stem.char_indices().nth(room).map_or(stem.len(), |(at, _)| at),
    };
    if end == 0 {
        return Err(format!("{name:?} can't be truncated to {most}: nothing is left"));
    }
    Ok(format!("{}{extension}", &stem[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(transforms: &[&str], path: &str, is_dir: bool) -> Result<String, String> {
        let texts: Vec<String> = transforms.iter().map(|text| text.to_string()).collect();
        NewNames::parse(&texts)?.of(path, is_dir)
    }

    #[test]
    fn examples_of_rclones_documentation() {
        let path = "stories/The Quick Brown Fox!.txt";
        for (transforms, expected) in [
            (&["all,uppercase"][..], "STORIES/THE QUICK BROWN FOX!.TXT"),
            (&["all,replace=Fox:Turtle", "all,replace=Quick:Slow"], "stories/The Slow Brown Turtle!.txt"),
            (&["all,base64encode"], "c3Rvcmllcw==/VGhlIFF1aWNrIEJyb3duIEZveCEudHh0"),
            (&["all,base64encode", "all,base64decode"], path),
            (&["all,trimsuffix=.txt"], "stories/The Quick Brown Fox!"),
            (&["all,prefix=OLD_"], "OLD_stories/OLD_The Quick Brown Fox!.txt"),
            (&["prefix=OLD_"], "stories/OLD_The Quick Brown Fox!.txt"),
            (&["dir,prefix=OLD_"], "OLD_stories/The Quick Brown Fox!.txt"),
            (&["suffix_keep_extension=-1"], "stories/The Quick Brown Fox!-1.txt"),
            (&["all,regex=[\\.\\w]/ab"], "ababababababab/ababab ababababab ababababab ababab!abababab"),
            (&["regex=(\\w+) (\\w+)/$2 ${1}"], "stories/Quick The Fox Brown!.txt"),
            (&["url"], "stories/The+Quick+Brown+Fox%21.txt"),
            (&["truncate=9"], "stories/The Quick"),
            (&["truncate_keep_extension=9"], "stories/The Q.txt"),
        ] {
            assert_eq!(new(transforms, path, false).unwrap(), expected, "{transforms:?}");
        }
        let odd = "stories/The Quick Brown \u{1f98a} Fox Went to the Cafe\u{301}!.txt";
        let cut = "stories/The Quick Brown \u{1f98a} Fo";
        assert_eq!(new(&["all,truncate=20"], odd, false).unwrap(), cut);
        assert_eq!(new(&["all,nfc"], odd, false).unwrap(), odd.replace("e\u{301}", "\u{e9}"));
        assert_eq!(new(&["ascii"], odd, false).unwrap(), "stories/The Quick Brown  Fox Went to the Cafe!.txt");
        let memoir = "stories/The Quick Brown Fox: A Memoir [draft].txt";
        let wide = "stories/The Quick Brown Fox\u{ff1a} A Memoir \u{ff3b}draft\u{ff3d}.txt";
        assert_eq!(new(&["all,encoder=Colon,SquareBracket"], memoir, false).unwrap(), wide);
        assert_eq!(new(&["all,decoder=Colon,SquareBracket"], wide, false).unwrap(), memoir);
    }

    #[test]
    fn directories_have_names_too() {
        assert_eq!(new(&["prefix=x"], "a/b", true).unwrap(), "a/b");
        assert_eq!(new(&["dir,prefix=x"], "a/b", true).unwrap(), "xa/xb");
        assert_eq!(new(&["dir,prefix=x"], "f", false).unwrap(), "f");
        assert_eq!(new(&["all,lowercase"], "A/\u{c4}", true).unwrap(), "a/\u{e4}");
    }

    #[test]
    fn what_can_be_no_name_is_refused() {
        for (transforms, path, why) in [
            (&["prefix=a/"][..], "f", "\"f\" would become \"a/f\", which can't be a name"),
            (&["trimprefix=f"], "f", "\"f\" would become \"\", which can't be a name"),
            (&["trimprefix=f"], "f..", "\"f..\" would become \"..\", which can't be a name"),
            (&["base64decode"], "%%", "\"%%\" isn't the Base64 of a name"),
            (&["truncate_keep_extension=3"], "name.text", "\"name.text\" can't be truncated to 3: nothing is left"),
            (&["prefix"], "f", "\"prefix\": prefix needs a value: prefix=…"),
            (&["truncate=x"], "f", "\"truncate=x\": \"x\" is not a whole number"),
            (&["regex=("], "f", "\"regex=(\": write regex=PATTERN/NEW"),
            (&["regex=(/x"], "f", "\"regex=(/x\": \"(\" isn't a regular expression"),
            (&["charmap=x"], "f", "\"charmap=x\": haul has no transformation charmap"),
        ] {
            assert_eq!(new(transforms, path, false).unwrap_err(), why, "{transforms:?}");
        }
    }
}
