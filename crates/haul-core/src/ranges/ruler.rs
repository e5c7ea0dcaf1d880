//! Where keys lie between others: as numbers, whose digits are the bytes that were seen at each place of a name. So `file-0042`
//! lies halfway between `file-0000` and `file-0084`, and `3f` just before half of all hexadecimal names.

use crate::Key;

/// Bytes of a name that are looked at.
const PLACES: usize = 1_024;
/// Numbers stay below this, so that one times a number of pages still fits.
const MOST: u128 = 1 << 96;

/// Observations at each place.
#[derive(Debug, Default)]
pub(super) struct Ruler {
    places: Vec<Observations>,
}

#[derive(Clone, Debug, Default)]
struct Observations {
    seen: [u128; 2],
    /// Names end here.
    end: bool,
    /// A place before it went on and this one began again: what there is here has been seen.
    again: bool,
}

/// The numbers of keys that begin alike.
pub(super) struct Scale {
    /// Their common prefix.
    common: Vec<u8>,
    /// The digits of each place after that, the lowest first; `None` is the end of a name.
    digits: Vec<Vec<Option<u8>>>,
}

const DIGITS: u128 = 0x3ff << 48;
const A_TO_F: u128 = 0x3f << 97;
const LOWER: u128 = 0x3ff_ffff << 97;

impl Observations {
    fn add(&mut self, byte: u8) {
        self.seen[usize::from(byte >> 7)] |= 1 << (byte & 127);
    }

    fn is_hex(&self) -> bool {
        self.seen[1] == 0 && self.seen[0] & !(DIGITS | A_TO_F) == 0
    }

    /// With what wasn't seen yet but surely belongs there: the other digits, and letters where many were seen.
    fn completed(&self, hex: bool) -> [u128; 2] {
        let mut seen = self.seen;
        if self.again {
            return seen;
        }
        let letters = seen[0] & LOWER;
        if seen[0] & DIGITS != 0 {
            seen[0] |= DIGITS;
        }
        if hex && self.is_hex() && (self.seen[0] & DIGITS != 0 || letters.count_ones() > 1) {
            seen[0] |= DIGITS | A_TO_F;
        }
        if letters & !A_TO_F != 0 && letters.count_ones() >= 6 {
            seen[0] |= LOWER;
        }
        seen
    }

    fn digits(&self, hex: bool) -> Vec<Option<u8>> {
        let seen = self.completed(hex);
        let bytes = (0..=255u8).filter(|b| seen[usize::from(b >> 7)] >> (b & 127) & 1 == 1);
        self.end.then_some(None).into_iter().chain(bytes.map(Some)).collect()
    }
}

impl Ruler {
    /// Takes notice of names that are in order.
    pub fn learn<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        let mut before: &[u8] = &[];
        for name in names {
            self.name(name);
            let alike = before.iter().zip(name).take_while(|(a, b)| a == b).count();
            for (place, (a, b)) in self.places.iter_mut().zip(before.iter().zip(name)).skip(alike) {
                place.again |= b <= a;
            }
            before = name;
        }
    }

    fn name(&mut self, key: &[u8]) {
        let len = key.len().min(PLACES);
        if self.places.len() <= len {
            self.places.resize(len + 1, Observations::default());
        }
        for (place, byte) in self.places.iter_mut().zip(&key[..len]) {
            place.add(*byte);
        }
        self.places[len].end = true;
    }

    /// A scale on which all of `keys` lie.
    pub fn scale(&self, keys: &[&Key]) -> Scale {
        let first = keys.first().map_or(&b""[..], |key| key.as_bytes());
        let alike = |len, key: &&Key| first[..len].iter().zip(key.as_bytes()).take_while(|(a, b)| a == b).count();
        let common = first[..keys.iter().fold(first.len(), alike)].to_vec();
        // Names that hold hashes show it somewhere.
        let many = |place: &Observations, of: u128| (place.seen[0] & of).count_ones() >= 2;
        let hex = self.places.iter().any(|place| place.is_hex() && many(place, A_TO_F) && many(place, DIGITS));
        let (mut digits, mut most) = (Vec::new(), 1u128);
        for place in self.places.iter().skip(common.len()) {
            let here = place.digits(hex);
            most = most.saturating_mul(here.len().max(1) as u128);
            if most > MOST || here.is_empty() {
                break;
            }
            digits.push(here);
        }
        Scale { common, digits }
    }
}

impl Scale {
    /// The number of a key that begins as the others do.
    pub fn number(&self, key: &Key) -> u128 {
        let mut rest = key.as_bytes().get(self.common.len()..).unwrap_or_default().iter();
        let mut number = 0;
        for digits in &self.digits {
            let byte = rest.next().copied();
            let rank = digits.partition_point(|digit| *digit < byte).min(digits.len() - 1);
            number = number * digits.len() as u128 + rank as u128;
        }
        number
    }

    /// How far `b` lies after `a`; 0 if it doesn't.
    pub fn between(&self, a: &Key, b: &Key) -> f64 {
        self.number(b).saturating_sub(self.number(a)) as f64
    }

    /// The key of a number; `None` beyond the scale.
    pub fn key(&self, mut number: u128) -> Option<Key> {
        let mut bytes = Vec::with_capacity(self.digits.len());
        for digits in self.digits.iter().rev() {
            let radix = digits.len() as u128;
            bytes.push(digits[(number % radix) as usize]);
            number /= radix;
        }
        let name = bytes.into_iter().rev().map_while(|byte| byte);
        (number == 0).then(|| Key::new(self.common.iter().copied().chain(name).collect::<Vec<u8>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_keys_agree() {
        let mut ruler = Ruler::default();
        ruler.learn(["file-0000.bin", "file-0019.bin"].map(str::as_bytes).into_iter());
        let (a, b) = (Key::new("file-0000.bin"), Key::new("file-0019.bin"));
        let scale = ruler.scale(&[&a, &b]);
        assert_eq!(scale.number(&b) - scale.number(&a), 19);
        assert_eq!(scale.key(scale.number(&a) + 42), Some(Key::new("file-0042.bin")));
        assert_eq!(scale.key(scale.number(&a) + 100), None, "what begins otherwise is beyond it");
    }

    #[test]
    fn hashes_are_known_by_their_letters() {
        let mut ruler = Ruler::default();
        // At a time, so that no place begins again.
        for name in ["ab/00c0", "ab/010f", "ab/011e", "ab/01d1", "ab/01fe", "ab/02ae"] {
            ruler.learn([name.as_bytes()].into_iter());
        }
        let (a, b) = (Key::new("ab/00c0"), Key::new("ab/02ae"));
        let scale = ruler.scale(&[&a, &b]);
        let key = scale.key(scale.number(&a) + (scale.number(&b) - scale.number(&a)) / 2 * 8);
        assert_eq!(key, Some(Key::new("ab/0878")));
    }
}
