//! Encoding of names for services: characters that a service refuses are replaced by lookalikes, as rclone writes them
//! (<https://rclone.org/overview/#encoding>), so that both tools read each other's names.
//!
//! Between haul's name and the service's stands the plain name, which may hold any character, a slash too. haul's name has `／` for a slash,
//! `␀` for a zero byte and `．` for a name of dots alone, as rclone writes them to a disk. In all of these, `‛` before a symbol makes
//! it literal.

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

const QUOTE: char = '‛';
/// From a printable ASCII character to its wide form.
const WIDE: u32 = 0xfee0;
/// The symbols of control characters begin here.
const SYMBOLS: u32 = 0x2400;
const NUL: char = '␀';
const SPACE: char = '␠';
const DELETE: char = '␡';
const SLASH: char = '／';
const PERIOD: char = '．';

/// Which characters of a name are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(u32);

/// Character classes with rclone's bit, and the characters replaced in any position.
const CLASSES: [(&str, u32, &str); 29] = [
    ("Raw", RAW, ""),
    ("Slash", 1 << 1, "/"),
    ("LtGt", 1 << 2, "<>"),
    ("DoubleQuote", 1 << 3, "\""),
    ("SingleQuote", 1 << 4, "'"),
    ("BackQuote", 1 << 5, "`"),
    ("Dollar", 1 << 6, "$"),
    ("Colon", 1 << 7, ":"),
    ("Question", 1 << 8, "?"),
    ("Asterisk", 1 << 9, "*"),
    ("Pipe", 1 << 10, "|"),
    ("Hash", 1 << 11, "#"),
    ("Percent", 1 << 12, "%"),
    ("BackSlash", 1 << 13, "\\"),
    ("CrLf", 1 << 14, "\r\n"),
    ("Del", 1 << 15, "\u{7f}"),
    ("Ctl", CTL, ""),
    ("LeftSpace", LEFT_SPACE, ""),
    ("LeftPeriod", LEFT_PERIOD, ""),
    ("LeftTilde", LEFT_TILDE, ""),
    ("LeftCrLfHtVt", LEFT_CONTROL, ""),
    ("RightSpace", RIGHT_SPACE, ""),
    ("RightPeriod", RIGHT_PERIOD, ""),
    ("RightCrLfHtVt", RIGHT_CONTROL, ""),
    ("InvalidUtf8", INVALID, ""),
    ("Dot", DOT, ""),
    ("SquareBracket", 1 << 26, "[]"),
    ("Semicolon", 1 << 27, ";"),
    ("Exclamation", 1 << 28, "!"),
];

const RAW: u32 = 1;
const CTL: u32 = 1 << 16;
const LEFT_SPACE: u32 = 1 << 17;
const LEFT_PERIOD: u32 = 1 << 18;
const LEFT_TILDE: u32 = 1 << 19;
const LEFT_CONTROL: u32 = 1 << 20;
const RIGHT_SPACE: u32 = 1 << 21;
const RIGHT_PERIOD: u32 = 1 << 22;
const RIGHT_CONTROL: u32 = 1 << 23;
const INVALID: u32 = 1 << 24;
const DOT: u32 = 1 << 25;

/// Characters replaced at the edges: in this order, the first that matches.
const LEFT: [(u32, &str); 4] =
    [(LEFT_SPACE, " "), (LEFT_PERIOD, "."), (LEFT_TILDE, "~"), (LEFT_CONTROL, "\t\n\u{b}\r")];
const RIGHT: [(u32, &str); 3] = [(RIGHT_SPACE, " "), (RIGHT_PERIOD, "."), (RIGHT_CONTROL, "\t\n\u{b}\r")];

/// Replacement of a character.
fn symbol(character: char) -> char {
    let code = match character {
        ' ' => return SPACE,
        '\u{7f}' => return DELETE,
        '\0'..='\u{1f}' => SYMBOLS + u32::from(character),
        _ => WIDE + u32::from(character),
    };
    char::from_u32(code).unwrap_or(character)
}

fn push(out: &mut Vec<u8>, character: char) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The first character, where it is one.
fn first(name: &[u8]) -> Option<char> {
    name.utf8_chunks().next()?.valid().chars().next()
}

/// The last character, where it is one.
fn last(name: &[u8]) -> Option<char> {
    let start = name.iter().rposition(|byte| byte & 0xc0 != 0x80)?;
    std::str::from_utf8(&name[start..]).ok()?.chars().next()
}

/// The name for a key at a service whose names are paths: by its encoding, or the key as it is where it has none.
///
/// Errors: as [`Encoding::encode_path`].
pub fn name_of(encoding: Option<Encoding>, key: &[u8]) -> Result<Vec<u8>, &'static str> {
    encoding.map_or_else(|| Ok(key.to_vec()), |encoding| encoding.encode_path(key))
}

impl Encoding {
    /// How rclone's remotes pass names on to one another, so what a wrapping remote sees.
    pub const STANDARD: Encoding = Encoding(1 << 1 | CTL | 1 << 15 | DOT);

    /// Reads classes' names, or rclone's number for some, with commas between them; `None` is none, `Raw` leaves all as it is.
    ///
    /// Errors: `Invalid`, with the names that there are.
    pub fn parse(text: &str) -> Result<Encoding> {
        let class = |name: &str| {
            let number = match name.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => name.parse().ok(),
            };
            let known = CLASSES.iter().find(|(known, ..)| *known == name).map(|(_, bit, _)| *bit);
            known.or((name == "None").then_some(0)).or(number).ok_or_else(|| {
                let names: Vec<&str> = CLASSES.iter().map(|(name, ..)| *name).collect();
                let message = format!("encoding has no part {name:?}: it is made of None, {}", names.join(", "));
                Error::new(ErrorKind::Invalid, "open", message)
            })
        };
        Ok(Encoding(text.split(',').map(|name| class(name.trim())).sum_bits()?))
    }

    /// Parses the encoding option of a service whose names are paths; `None` where names stay as they are: the option is empty, or `Raw`.
    ///
    /// Errors: as [`Encoding::parse`].
    pub fn chosen(text: &str) -> Result<Option<Encoding>> {
        match text.trim() {
            "" => Ok(None),
            text => Ok(Some(Encoding::parse(text)?).filter(|encoding| !encoding.has(RAW))),
        }
    }

    fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// True for a character that is replaced in any position.
    fn replaces(self, character: char) -> bool {
        match character {
            '\0' => true,
            '\u{1}'..='\u{1f}' if self.has(CTL) => true,
            _ => CLASSES.iter().any(|(_, bit, all)| self.has(*bit) && all.contains(character)),
        }
    }

    /// The character that a symbol stands for wherever it stands; `None` for what isn't one here.
    fn meant(self, symbol: char) -> Option<char> {
        let code = u32::from(symbol);
        let character = match symbol {
            DELETE => '\u{7f}',
            '\u{2400}'..='\u{241f}' => char::from_u32(code - SYMBOLS)?,
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(code - WIDE)?,
            _ => return None,
        };
        self.replaces(character).then_some(character)
    }

    /// The service's name for a part of a key (no slash in it); `None` for one that would come back as another.
    pub fn encode<'a>(self, part: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.is_plain(part) {
            return Some(Cow::Borrowed(part));
        }
        let name = self.encode_plain(&from_ours(part));
        (self.decode(&name) == part).then_some(Cow::Owned(name))
    }

    /// As [`Encoding::encode`], for services whose names are text; `None` also for bytes that are none.
    pub fn encode_text(self, part: &[u8]) -> Option<String> {
        String::from_utf8(self.encode(part)?.into_owned()).ok()
    }

    /// The part of a key for a service's name.
    pub fn decode<'a>(self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_plain(name) {
            return Cow::Borrowed(name);
        }
        Cow::Owned(to_ours(&self.decode_plain(name)))
    }

    /// The service's name for a key, part by part, where its names are paths.
    ///
    /// Errors: why it can have none, in a few words.
    pub fn encode_path(self, key: &[u8]) -> Result<Vec<u8>, &'static str> {
        let inner = key.strip_suffix(b"/").unwrap_or(key);
        if key.is_empty() {
            return Ok(Vec::new());
        }
        let mut name = Vec::with_capacity(key.len() + 16);
        for part in inner.split(|byte| *byte == b'/') {
            if part.is_empty() {
                return Err("a part of it is empty");
            }
            // A slash would make two parts of one.
            let encoded = self.encode(part).filter(|encoded| !encoded.contains(&b'/'));
            name.extend_from_slice(&encoded.ok_or("with this encoding it would come back as another")?);
            name.push(b'/');
        }
        name.truncate(name.len() - usize::from(inner.len() == key.len()));
        Ok(name)
    }

    /// The key of a name in a service whose names are paths. Several names may have one key: see [`Encoding::encode_path`].
    pub fn decode_path(self, name: &[u8]) -> Vec<u8> {
        let parts: Vec<_> = name.split(|byte| *byte == b'/').map(|part| self.decode(part)).collect();
        parts.join(&b'/')
    }

    /// True for a name that needs no closer look: most are.
    fn is_plain(self, name: &[u8]) -> bool {
        let inner = name.iter().all(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b' ' => true,
            b'/' | 0x80.. => false,
            _ => !self.replaces(char::from(*byte)),
        });
        let edge = |byte: Option<&u8>| byte.is_none_or(|byte| !b" .~\t\n\x0b\r".contains(byte));
        inner && (edge(name.first()) && edge(name.last()))
    }

    fn encode_plain(self, mut name: &[u8]) -> Vec<u8> {
        if self.has(RAW) {
            return name.to_vec();
        }
        if self.has(DOT) {
            match name {
                b"." => return "．".into(),
                b".." => return "．．".into(),
                _ if name == "．".as_bytes() => return "‛．".into(),
                _ if name == "．．".as_bytes() => return "‛．‛．".into(),
                _ => {}
            }
        }
        let (mut out, mut suffix) = (Vec::with_capacity(name.len() + 16), Vec::new());
        let edge = |edges: &[(u32, &str)], character: char, out: &mut Vec<u8>| {
            let classes = edges.iter().filter(|(bit, _)| self.has(*bit)).flat_map(|(_, all)| all.chars());
            let found =
                classes.map(|of| (of, symbol(of))).find(|(of, symbol)| character == *of || character == *symbol);
            if let Some((of, symbol)) = found {
                if character != of {
                    push(out, QUOTE);
                }
                push(out, symbol);
            }
            found.is_some()
        };
        if let Some(character) = first(name)
            && edge(&LEFT, character, &mut out)
        {
            name = &name[character.len_utf8()..];
        }
        if let Some(character) = last(name)
            && edge(&RIGHT, character, &mut suffix)
        {
            name = &name[..name.len() - character.len_utf8()];
        }
        for chunk in name.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character == QUOTE || self.meant(character).is_some() {
                    push(&mut out, QUOTE);
                }
                push(&mut out, if self.replaces(character) { symbol(character) } else { character });
            }
            for byte in chunk.invalid() {
                if self.has(INVALID) {
                    out.extend_from_slice(format!("{QUOTE}{byte:02X}").as_bytes());
                } else {
                    out.push(*byte);
                }
            }
        }
        out.extend(suffix);
        out
    }

    fn decode_plain(self, mut name: &[u8]) -> Vec<u8> {
        if self.has(RAW) {
            return name.to_vec();
        }
        if self.has(DOT) {
            match std::str::from_utf8(name) {
                Ok("．") => return b".".into(),
                Ok("．．") => return b"..".into(),
                Ok("‛．") => return "．".into(),
                Ok("‛．‛．") => return "．．".into(),
                _ => {}
            }
        }
        let edge = |edges: &[(u32, &str)], character: char| {
            let mut classes = edges.iter().filter(|(bit, _)| self.has(*bit)).flat_map(|(_, all)| all.chars());
            classes.find(|of| symbol(*of) == character)
        };
        let (mut out, mut suffix) = (Vec::with_capacity(name.len()), None);
        let quoted = |name: &[u8]| name.strip_prefix("‛".as_bytes()).and_then(first);
        if let Some(symbol) = first(name) {
            if let Some(of) = edge(&LEFT, symbol) {
                push(&mut out, of);
                name = &name[symbol.len_utf8()..];
            } else if symbol == QUOTE
                && let Some(symbol) = quoted(name).filter(|symbol| edge(&LEFT, *symbol).is_some())
            {
                push(&mut out, symbol);
                name = &name[QUOTE.len_utf8() + symbol.len_utf8()..];
            }
        }
        if let Some(symbol) = last(name)
            && let Some(of) = edge(&RIGHT, symbol)
        {
            name = &name[..name.len() - symbol.len_utf8()];
            suffix = Some(match name.strip_suffix("‛".as_bytes()) {
                Some(rest) => {
                    name = rest;
                    symbol
                }
                None => of,
            });
        }
        let mut quote = false;
        for chunk in name.utf8_chunks() {
            let mut characters = chunk.valid().chars();
            while let Some(character) = characters.next() {
                match (std::mem::take(&mut quote), character) {
                    (false, QUOTE) => quote = true,
                    (false, _) => push(&mut out, self.meant(character).unwrap_or(character)),
                    (true, QUOTE) => push(&mut out, QUOTE),
                    (true, _) if self.meant(character).is_some() => push(&mut out, character),
                    (true, _) => {
                        let low = characters.clone().next();
                        let digit = |c: char| c.to_digit(16);
                        match (self.has(INVALID), digit(character), low.and_then(digit)) {
                            (true, Some(high), Some(low)) => {
                                out.push((high << 4 | low) as u8);
                                characters.next();
                            }
                            _ => {
                                // It quoted nothing.
                                push(&mut out, QUOTE);
                                push(&mut out, character);
                            }
                        }
                    }
                }
            }
            if !chunk.invalid().is_empty() && std::mem::take(&mut quote) {
                push(&mut out, QUOTE);
            }
            out.extend_from_slice(chunk.invalid());
        }
        if quote {
            push(&mut out, QUOTE);
        }
        suffix.into_iter().for_each(|character| push(&mut out, character));
        out
    }
}

/// Bits of several classes, or the first error.
trait SumBits {
    fn sum_bits(self) -> Result<u32>;
}

impl<I: Iterator<Item = Result<u32>>> SumBits for I {
    fn sum_bits(mut self) -> Result<u32> {
        self.try_fold(0, |bits, class| Ok(bits | class?))
    }
}

/// Names of dots: how many quotes stand before each, where that is all.
fn dots(name: &[u8]) -> Option<(usize, bool)> {
    let text = std::str::from_utf8(name).ok()?;
    let rest = text.trim_start_matches(QUOTE);
    let quotes = (text.len() - rest.len()) / QUOTE.len_utf8();
    let rest = rest.strip_prefix(PERIOD)?;
    if rest.is_empty() {
        return Some((quotes, false));
    }
    let second = rest.strip_suffix(PERIOD)?;
    (second.chars().all(|c| c == QUOTE) && second.len() == quotes * QUOTE.len_utf8()).then_some((quotes, true))
}

fn made_of_dots(quotes: usize, two: bool) -> Vec<u8> {
    let one = format!("{}{PERIOD}", QUOTE.to_string().repeat(quotes));
    (if two { one.repeat(2) } else { one }).into_bytes()
}

/// The plain name behind one of ours. Unlike rclone's, no two names of ours are one: a quote counts only where it stands before a
/// symbol, at the end of a row of them.
fn from_ours(part: &[u8]) -> Vec<u8> {
    match dots(part) {
        Some((0, false)) => return b".".into(),
        Some((0, true)) => return b"..".into(),
        Some((quotes, two)) => return made_of_dots(quotes - 1, two),
        None => {}
    }
    each_row(part, |quotes, character, out| {
        let (meant, itself) = match character {
            SLASH => ('/', SLASH),
            NUL => ('\0', NUL),
            _ => return false,
        };
        (0..quotes / 2).for_each(|_| push(out, QUOTE));
        push(out, if quotes % 2 == 0 { meant } else { itself });
        true
    })
}

/// The reverse of [`from_ours`].
fn to_ours(plain: &[u8]) -> Vec<u8> {
    match plain {
        b"." => return "．".into(),
        b".." => return "．．".into(),
        _ => {}
    }
    if let Some((quotes, two)) = dots(plain) {
        return made_of_dots(quotes + 1, two);
    }
    each_row(plain, |quotes, character, out| {
        let (symbol, more) = match character {
            '/' => (SLASH, 0),
            '\0' => (NUL, 0),
            SLASH | NUL => (character, 1),
            _ => return false,
        };
        (0..quotes * 2 + more).for_each(|_| push(out, QUOTE));
        push(out, symbol);
        true
    })
}

/// Goes through a name: `put` takes a row of quotes (perhaps none) and the character after it, or leaves both as they are.
fn each_row(name: &[u8], put: impl Fn(usize, char, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let (mut out, mut quotes) = (Vec::with_capacity(name.len() + 8), 0);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == QUOTE {
                quotes += 1;
                continue;
            }
            if !put(quotes, character, &mut out) {
                (0..quotes).for_each(|_| push(&mut out, QUOTE));
                push(&mut out, character);
            }
            quotes = 0;
        }
        if !chunk.invalid().is_empty() {
            (0..std::mem::take(&mut quotes)).for_each(|_| push(&mut out, QUOTE));
            out.extend_from_slice(chunk.invalid());
        }
    }
    (0..quotes).for_each(|_| push(&mut out, QUOTE));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(mask: &str, part: &str) -> Option<String> {
        Encoding::parse(mask).unwrap().encode_text(part.as_bytes())
    }

    #[test]
    fn classes_have_rclones_names_and_numbers() {
        assert_eq!(Encoding::parse("Slash, Ctl,Del,Dot").unwrap(), Encoding::STANDARD);
        assert_eq!(Encoding::parse("0x2,16").unwrap(), Encoding::parse("Slash,SingleQuote").unwrap());
        assert_eq!(Encoding::parse("None").unwrap(), Encoding(0));
        assert!(CLASSES.iter().enumerate().all(|(place, (_, bit, _))| *bit == 1 << place));
        let message = Encoding::parse("Slash,Comma").unwrap_err().message().to_owned();
        assert!(message.contains("\"Comma\"") && message.contains("Asterisk"), "{message}");
    }

    #[test]
    fn paths_are_encoded_part_by_part() {
        let mask = Encoding::chosen("Slash,BackSlash,RightPeriod,InvalidUtf8").unwrap().unwrap();
        for (key, name) in
            [("", ""), ("a", "a"), ("a./b\\c/", "a．/b＼c/"), ("x／y/‛.x", "x／y/‛‛.x"), ("．/d", "．/d")]
        {
            let encoded = mask.encode_path(key.as_bytes());
            assert_eq!(encoded.as_deref().map(String::from_utf8_lossy), Ok(name.into()));
            assert_eq!(mask.decode_path(name.as_bytes()), key.as_bytes());
        }
        for (key, why) in [
            ("/", "a part of it is empty"),
            ("/a", "a part of it is empty"),
            ("a//b", "a part of it is empty"),
            ("a/./b", "with this encoding it would come back as another"),
        ] {
            assert_eq!(mask.encode_path(key.as_bytes()), Err(why), "{key}");
        }
        // A slash within a name doesn't become a path separator; such a name is refused.
        let none = Encoding::chosen("None").unwrap().unwrap();
        assert!(none.encode_path("x／y".as_bytes()).is_err());
        assert_eq!(none.encode_path("‛x".as_bytes()).unwrap(), "‛‛x".as_bytes());
        for raw in ["", " ", "Raw", "Slash,Raw"] {
            assert_eq!(Encoding::chosen(raw).unwrap(), None);
        }
        assert!(Encoding::chosen("Comma").is_err());
    }

    #[test]
    fn characters_that_a_service_cannot_have_are_replaced() {
        let mask = "LtGt,Colon,BackSlash,LeftTilde,LeftSpace,RightSpace,RightPeriod,Ctl,Del,InvalidUtf8,Dot";
        for (part, name) in [
            ("plain name.txt", "plain name.txt"),
            ("a<b>:c", "a＜b＞：c"),
            ("＜", "‛＜"),
            ("~x", "～x"),
            ("x~", "x~"),
            (" x ", "␠x␠"),
            ("x. ", "x.␠"),
            ("x..", "x.．"),
            ("tab\t", "tab␉"),
            ("‛x", "‛‛x"),
            ("a／b", "a/b"),
            ("a‛／b", "a／b"),
            ("．", "．"),
            ("‛．", "‛．"),
            ("‛‛．", "‛‛‛．"),
            ("．．", "．．"),
        ] {
            assert_eq!(encode(mask, part).as_deref(), Some(name), "{part}");
        }
        assert_eq!(encode(mask, "a‛ "), None, "by rclone's rules it would come back as another");
        assert_eq!(encode("Raw", "a／<").as_deref(), Some("a/<"));
        assert_eq!(Encoding::parse(mask).unwrap().encode(b"a\xff\xc3").unwrap(), "a‛FF‛C3".as_bytes());
        assert!(Encoding::STANDARD.encode_text(b"a\xff").is_none());
        assert_eq!(*Encoding::STANDARD.decode("‛a‛".as_bytes()), *"‛a‛".as_bytes(), "quotes that quote nothing stay");
    }

    proptest! {
        #[test]
        fn names_come_back_or_are_refused(mask in 0u32..1 << 29, parts in prop::collection::vec(prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            prop::sample::select(vec!["‛", "␉", "␀", "␡", "．", "／", ".", " ", "␠", "～", "~", "＊", "FF", "\u{7f}", "é"]).prop_map(|text| text.as_bytes().to_vec()),
        ], 1..8)) {
            let part: Vec<u8> = parts.concat().into_iter().filter(|byte| !matches!(byte, 0 | b'/')).collect();
            prop_assume!(!matches!(&*part, b"" | b"." | b".."));
            let encoding = Encoding(mask & !RAW);
            if let Some(name) = encoding.encode(&part) {
                prop_assert_eq!(encoding.decode(&name).into_owned(), part);
            } else {
                // Refused names are unusual: they contain a quote or a symbol.
                prop_assert!(part.iter().any(|byte| *byte >= 0x80));
            }
        }

        #[test]
        fn names_of_ours_and_plain_ones_go_in_pairs(parts in prop::collection::vec(prop::sample::select(vec!["‛", "／", "␀", "．", ".", "x", "/", "\0", "é"]), 1..7)) {
            let plain = parts.concat();
            let ours = to_ours(plain.as_bytes());
            prop_assert!(!ours.contains(&b'/') && !ours.contains(&0) && !matches!(&*ours, b"." | b".."));
            prop_assert_eq!(from_ours(&ours), plain.as_bytes());
            let part = parts.concat().replace(['/', '\0'], "x");
            prop_assume!(!matches!(&*part, "." | ".."));
            prop_assert_eq!(to_ours(&from_ours(part.as_bytes())), part.as_bytes());
        }

        #[test]
        fn what_a_service_has_gives_a_name_that_can_be(mask in 0u32..1 << 29, name in "\\PC{1,6}") {
            let ours = Encoding(mask).decode(name.as_bytes()).into_owned();
            prop_assert!(!ours.contains(&b'/') && !ours.contains(&0) && !matches!(&*ours, b"." | b".."));
        }
    }
}
