//! Obfuscated names: each letter is exchanged for another of its kind. No encryption, only against a glance.

/// Quotes itself, and what has no place to go to.
const QUOTE: char = '!';

/// Kinds of characters that are exchanged among themselves, as (first, how many, steps that differ).
enum Ring {
    Digits,
    Letters,
    Latin1,
    Block(u32),
}

impl Ring {
    fn of(character: char) -> Option<Ring> {
        match character {
            '0'..='9' => Some(Ring::Digits),
            'A'..='Z' | 'a'..='z' => Some(Ring::Letters),
            '\u{a0}'..='\u{ff}' => Some(Ring::Latin1),
            '\u{100}'.. => Some(Ring::Block(u32::from(character) & !0xff)),
            _ => None,
        }
    }

    /// Characters in it, and by how many of them a name with this number is shifted.
    fn size_and_steps(&self, shift: u32) -> (u32, u32) {
        match self {
            Ring::Digits => (10, shift % 9 + 1),
            Ring::Letters => (52, shift % 25 + 1),
            Ring::Latin1 => (96, shift % 95 + 1),
            Ring::Block(_) => (256, shift % 127 + 1),
        }
    }

    fn place(&self, character: char) -> u32 {
        let code = u32::from(character);
        match (self, character) {
            (Ring::Digits, _) => code - u32::from('0'),
            (Ring::Letters, 'a'..='z') => code - u32::from('a') + 26,
            (Ring::Letters, _) => code - u32::from('A'),
            (Ring::Latin1, _) => code - 0xa0,
            (Ring::Block(first), _) => code - first,
        }
    }

    /// `None` for a code point that isn't a character.
    fn at(&self, place: u32) -> Option<char> {
        char::from_u32(match self {
            Ring::Digits => u32::from('0') + place,
            Ring::Letters if place >= 26 => u32::from('a') + place - 26,
            Ring::Letters => u32::from('A') + place,
            Ring::Latin1 => 0xa0 + place,
            Ring::Block(first) => first + place,
        })
    }
}

/// The name hidden; `key` is the sum of the bytes of the key of names.
pub fn hide(name: &[u8], key: u32) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else { return [b"!.", name].concat() };
    let number = text.chars().fold(0u64, |sum, character| sum + u64::from(u32::from(character))) % 256;
    let (number, mut out) = (number as u32, format!("{number}."));
    for character in text.chars() {
        match Ring::of(character) {
            None if character == QUOTE => out.extend([QUOTE, QUOTE]),
            None => out.push(character),
            Some(ring) => {
                let (size, steps) = ring.size_and_steps(number + key);
                match ring.at((ring.place(character) + steps) % size) {
                    Some(moved) => out.push(moved),
                    None => out.extend([QUOTE, character]),
                }
            }
        }
    }
    out.into_bytes()
}

/// The name behind a hidden one; `None` for one that isn't hidden so.
pub fn show(hidden: &[u8], key: u32) -> Option<Vec<u8>> {
    let at = hidden.iter().position(|byte| *byte == b'.')?;
    let (number, rest) = (&hidden[..at], &hidden[at + 1..]);
    if number == b"!" {
        return Some(rest.to_vec());
    }
    let digits = number.len() <= 3 && number.iter().all(u8::is_ascii_digit);
    let number: u32 = std::str::from_utf8(number).ok().filter(|_| digits)?.parse().ok()?;
    let (mut out, mut quoted) = (String::new(), false);
    for character in std::str::from_utf8(rest).ok()?.chars() {
        match Ring::of(character) {
            _ if quoted => {
                out.push(character);
                quoted = false;
            }
            None if character == QUOTE => quoted = true,
            None => out.push(character),
            Some(ring) => {
                let (size, steps) = ring.size_and_steps(number + key);
                out.push(ring.at((ring.place(character) + size - steps) % size)?);
            }
        }
    }
    Some(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_hidden_as_in_rclone() {
        // With keys of zeros.
        for (plain, hidden) in [("1", "49.6"), ("12", "99.23"), ("a!b", "228.e!!f"), ("\u{1}", "1.\u{1}")] {
            assert_eq!(hide(plain.as_bytes(), 0), hidden.as_bytes(), "{plain}");
            assert_eq!(show(hidden.as_bytes(), 0).unwrap(), plain.as_bytes());
        }
        assert_eq!(hide(b"\xff", 0), b"!.\xff");
        for foreign in ["", "1", "x.a", ".a", "-1.a", "1000.a"] {
            assert_eq!(show(foreign.as_bytes(), 0), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(name: String, key in 0u32..8160) {
            prop_assume!(!name.is_empty());
            prop_assert_eq!(show(&hide(name.as_bytes(), key), key), Some(name.into_bytes()));
        }
    }
}
