//! A part of all files, chosen by a hash of their names (`--hash-filter K/N`): the parts don't overlap, and each machine or run
//! that is given another `K` gets other files.

use crate::{Algo, Hasher, names::folded};
use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU64};

/// One of N parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Which part, from 0 on.
    pub part: u64,
    /// How many there are.
    pub of: NonZeroU64,
}

impl Partition {
    /// Reads `K/N`; `@/N` is a part by chance, for which `chance` gives a number.
    pub fn parse(text: &str, chance: impl FnOnce() -> u64) -> Result<Partition, String> {
        let (part, of) = text.split_once('/').ok_or_else(|| format!("{text:?} isn't K/N, such as 1/4"))?;
        let whole = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is not a whole number"));
        let of = NonZeroU64::new(whole(of)?).ok_or("there must be at least one part: K/N with N above 0")?;
        let part = if part == "@" { chance() } else { whole(part)? };
        Ok(Partition { part: part % of, of })
    }

    /// Is the file of this name in this part? Names that some store takes for one (by case, or by how Unicode composes) are in
    /// one part.
    pub fn holds(&self, name: &[u8]) -> bool {
        let mut hasher = Hasher::new(&[Algo::Md5]);
        hasher.update(folded(name).as_bytes());
        let hashes = hasher.finish();
        let number =
            hashes.get(Algo::Md5).and_then(|md5| md5.first_chunk()).map_or(0, |head| u64::from_le_bytes(*head));
        number % self.of == self.part
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Partition {
        Partition::parse(text, || 7).unwrap()
    }

    #[test]
    fn parts_are_rclones() {
        let of = |text: &str| {
            let part = part(text);
            (1..10).filter(|n| part.holds(format!("file{n}.jpg").as_bytes())).collect::<Vec<_>>()
        };
        // As rclone's own documentation lists them.
        assert_eq!(of("0/4"), [1, 5]);
        assert_eq!(of("1/4"), [3, 6, 9]);
        assert_eq!(of("2/4"), [2, 4]);
        assert_eq!(of("3/4"), [7, 8]);
        assert_eq!(part("4/4"), part("0/4"));
        assert_eq!(part("@/4"), part("3/4"));
    }

    #[test]
    fn names_that_a_store_takes_for_one_are_in_one_part() {
        for n in 0..50u64 {
            let part = Partition { part: n % 5, of: NonZeroU64::new(5).unwrap() };
            assert_eq!(
                part.holds(format!("Caf\u{e9}{n}").as_bytes()),
                part.holds(format!("CAFE\u{301}{n}").as_bytes())
            );
        }
        assert_eq!(folded(b"A\xff\xfe\xc4\xb0"), "a\u{fffd}\u{fffd}i");
    }

    #[test]
    fn what_is_no_part_is_named() {
        let wrong = |text: &str| Partition::parse(text, || 0).unwrap_err();
        assert_eq!(wrong("3"), "\"3\" isn't K/N, such as 1/4");
        assert_eq!(wrong("1/x"), "\"x\" is not a whole number");
        assert_eq!(wrong("-1/2"), "\"-1\" is not a whole number");
        assert_eq!(wrong("0/0"), "there must be at least one part: K/N with N above 0");
    }
}
