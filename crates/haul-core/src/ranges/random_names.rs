//! Names drawn at random, like hashes: their first page shows how many there are. Not for names that count up,
//! contain a time, or begin in the middle: those don't predict later ones.

use crate::Key;

/// Hexadecimal digits that are looked at.
const DIGITS: u32 = 12;
/// Fewest names that show anything.
const FEWEST: usize = 200;
/// Between which the gaps' standard deviation over their mean lies: 1 for names drawn at random, with 1,000 of them 0.97 to
/// 1.03 in most cases, less where each has a part of the space to itself; 0 for those that count, more where names crowd.
const RANDOM: (f64, f64) = (0.3, 1.25);
/// Most pages that are believed: numbers that count with gaps would make billions.
const MOST: f64 = 1e5;
/// The first one lies this many mean gaps behind the very first name there could be, at most.
const BEGINS: f64 = 12.0;
/// Part of the last four digits that are letters: 6 in 16.
const LETTERS: (f64, f64) = (0.3, 0.45);

/// Count of all numbers with [`DIGITS`] digits.
const SPACE: f64 = (1u64 << (4 * DIGITS)) as f64;

/// A space of names, evenly filled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    /// Common prefix of all names, before their first digit.
    before: Vec<u8>,
    /// Shape of the rest of a name, as far as its digits go.
    like: Vec<u8>,
    /// Pages that came of it, and how much of the space they cover.
    came: f64,
    covered: f64,
}

impl Spread {
    /// Estimate from the first whole page of a listing; `None` unless its names are plainly drawn at random.
    pub fn seen(names: &[&Key]) -> Option<Spread> {
        let (first, last) = (names.first()?.as_bytes(), names.last()?.as_bytes());
        if names.len() < FEWEST {
            return None;
        }
        let alike = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let before = first[..begins(&first[..alike])].to_vec();
        let (mut values, mut letters) = (Vec::with_capacity(names.len()), 0);
        for name in names {
            let value = value(name.as_bytes().strip_prefix(&before[..])?)?;
            letters += (0..4).filter(|place| value >> (4 * place) & 15 > 9).count();
            values.push(value as f64);
        }
        let letters = letters as f64 / (4 * names.len()) as f64;
        let gaps: Vec<f64> = values.windows(2).map(|two| two[1] - two[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let varies = variance.sqrt() / mean;
        let random = (RANDOM.0..RANDOM.1).contains(&varies) && (LETTERS.0..LETTERS.1).contains(&letters);
        let like = first[before.len()..].to_vec();
        let covered = values[values.len() - 1];
        let spread = Spread { before, like, came: 1.0, covered };
        (random && values[0] <= BEGINS * mean && spread.pages() <= MOST).then_some(spread)
    }

    /// So many pages are all that there is between two keys.
    pub fn learn(&mut self, after: &Key, last: &Key, pages: f64) {
        if let (Some(after), Some(last)) = (self.value(after), self.value(last))
            && last > after
        {
            self.came += pages;
            self.covered += (last - after) as f64;
        }
    }

    fn value(&self, key: &Key) -> Option<u64> {
        key.as_bytes().strip_prefix(&self.before[..]).and_then(value)
    }

    /// Pages that come after a key of it.
    pub fn ahead(&self, after: &Key) -> f64 {
        self.value(after).map_or(0.0, |value| self.pages() * (1.0 - value as f64 / SPACE))
    }

    /// Pages in all.
    pub fn pages(&self) -> f64 {
        SPACE / self.covered * self.came
    }

    /// Two names, and the number of seen pages between them: the same anywhere in the space.
    pub fn measure(&self) -> (Key, Key, f64) {
        let part = (self.covered / SPACE).min(0.999);
        (self.name(0), self.name((part * SPACE) as u64), self.came.min(self.pages() * part))
    }

    /// The name of a number.
    fn name(&self, value: u64) -> Key {
        let mut name = self.before.clone();
        let mut left = DIGITS;
        for byte in &self.like {
            if left == 0 {
                break;
            }
            if matches!(byte, b'/' | b'-') {
                name.push(*byte);
                continue;
            }
            left -= 1;
            name.push(b"0123456789abcdef"[(value >> (4 * left) & 15) as usize]);
        }
        Key::new(name)
    }
}

/// Where the digits begin in what names of the first page have in common: its zeros at the end belong to them, also as
/// folders of their own (`00/00/3f…`).
fn begins(common: &[u8]) -> usize {
    let zeros = |part: &[u8]| part.iter().rev().take_while(|byte| **byte == b'0').count();
    let mut at = common.len() - zeros(common);
    while let Some(folder) = common[..at].strip_suffix(b"/") {
        let name = folder.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name.is_empty() || zeros(name) < name.len() {
            break;
        }
        at = folder.len() - name.len();
    }
    at
}

/// The number that a name's first digits make, whatever separates them; a name that ends before is the least that begins so.
fn value(name: &[u8]) -> Option<u64> {
    let (mut value, mut digits) = (0, 0);
    for byte in name {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'/' | b'-' => continue,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
        digits += 1;
        if digits == DIGITS {
            return Some(value);
        }
    }
    (digits > 0).then(|| value << (4 * (DIGITS - digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(n: u64) -> u64 {
        let mut z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn seen(mut names: Vec<String>) -> Option<Spread> {
        names.sort();
        let keys: Vec<Key> = names.into_iter().take(1_000).map(Key::new).collect();
        Spread::seen(&keys.iter().collect::<Vec<_>>())
    }

    #[test]
    fn hashes_tell_how_many_there_are() {
        for count in [20_000u64, 300_000] {
            for shape in 0..4 {
                let name = |n: u64| match shape {
                    0 => format!("{:016x}", random(n)),
                    1 => format!("files/md5/{:02x}/{:014x}", random(n) >> 56, random(n) << 8 >> 8),
                    2 => format!("a/{:02x}/{:02x}/x", random(n) >> 56, random(n) >> 48 & 255)
                        .replace('x', &format!("{:012x}", random(n) << 16 >> 16)),
                    _ => format!("v1.0/{:08x}-{:08x}.bin", random(n) >> 32, random(n) & 0xffff_ffff),
                };
                let mut spread = seen((0..count).map(name).collect()).expect("hashes");
                let (from, to, measured) = spread.measure();
                assert_eq!(spread.value(&from), Some(0), "{from}");
                assert!((spread.ahead(&from) - spread.ahead(&to) - measured).abs() < 0.1, "{to}");
                let pages = count as f64 / 1_000.0;
                assert!((spread.pages() / pages - 1.0).abs() < 0.15, "{count} {shape}: {} pages", spread.pages());
                let middle = Key::new(name(0).replace(|c: char| c.is_ascii_hexdigit(), "8"));
                if shape == 0 {
                    assert!((spread.ahead(&middle) / pages - 0.47).abs() < 0.1);
                    spread.learn(&Key::new("8"), &Key::new("c"), pages / 4.0);
                    assert!((spread.pages() / pages - 1.0).abs() < 0.05);
                }
            }
        }
    }

    #[test]
    fn other_names_tell_nothing() {
        let none = |names: Vec<String>| assert_eq!(seen(names), None);
        none((0..100_000u64).map(|n| format!("file-{n:012}")).collect());
        none((0..100_000u64).map(|n| format!("{n:012x}")).collect());
        for length in [8, 12, 16] {
            none((0..100_000u64).map(|n| format!("{:0length$x}", 5 * n + random(n) % 5)).collect());
            none((0..500_000u64).filter(|n| random(*n).is_multiple_of(5)).map(|n| format!("{n:0length$x}")).collect());
        }
        none((0..100_000u64).map(|n| format!("{:013}", 1_700_000_000_000 + random(n) % 1_000_000_000)).collect());
        // Decimal digits, words, and two files a hash.
        none((0..100_000u64).map(|n| format!("{:016}", random(n) % 10_000_000_000_000_000)).collect());
        none((0..100_000u64).map(|n| format!("x{n}-{:012x}", random(n))).collect());
        none((0..100_000u64).map(|n| format!("{:016x}/{}", random(n / 2), n % 2)).collect());
        none((0..100u64).map(|n| format!("{:016x}", random(n))).collect());
    }

    #[test]
    fn the_upper_half_is_taken_for_its_first_part() {
        let upper = seen((0..100_000u64).map(|n| format!("{:016x}", random(n) | 1 << 63)).collect()).expect("hashes");
        assert!((upper.pages() - 12.5).abs() < 2.0, "{}", upper.pages());
        assert!(upper.ahead(&Key::new("9000000000000000")) < 1e-9);
    }
}
