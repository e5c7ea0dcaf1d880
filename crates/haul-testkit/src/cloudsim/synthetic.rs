//! Buckets of any number of keys that are computed, not stored. Key number `i` is at place `i` of the bytewise order,
//! so a place in the order is found by halving, in as many steps as the number of keys has bits.

use super::{etag::Tag, pattern, units};
use std::{fmt::Write as _, str::FromStr};

/// How the keys look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `file-00000000.bin` and on, without folders.
    Flat,
    /// Folders three deep, a hundred files in each last one: `d00000/d00/d00/file-00.bin`.
    Tree,
    /// As DVC keeps files: `files/md5/` and an MD5 of which the first two digits are a folder, evenly spread.
    Dvc,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        match text {
            "flat" => Ok(Shape::Flat),
            "tree" => Ok(Shape::Tree),
            "dvc" => Ok(Shape::Dvc),
            _ => Err(format!("no shape is called {text:?}: want flat, tree or dvc")),
        }
    }
}

/// A made-up bucket's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticContent {
    /// How many keys.
    pub keys: u64,
    /// How they look.
    pub shape: Shape,
    /// Bytes of each.
    pub size: u64,
}

/// Files of a last folder, and folders of a folder, in a tree.
const FILES: u64 = 100;
const FOLDERS: u64 = 32;
/// Keys at most: what the names' digits hold.
const MOST: u64 = 10_000_000_000;

impl SyntheticContent {
    /// From `keys=1000000,shape=flat,size=1000`, in any order.
    ///
    /// Errors: what was wanted.
    pub fn parse(text: &str) -> Result<SyntheticContent, String> {
        let mut made = SyntheticContent { keys: 0, shape: Shape::Flat, size: 1000 };
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("want NAME=VALUE, not {pair:?}"))?;
            match name.trim() {
                "keys" => {
                    made.keys = value.trim().parse().map_err(|_| format!("want a number of keys, not {value:?}"))?
                }
                "shape" => made.shape = value.trim().parse()?,
                "size" => made.size = units::bytes(value)?,
                _ => return Err(format!("no property of a bucket is called {name:?}: want keys, shape or size")),
            }
        }
        if made.keys > MOST {
            return Err(format!("at most {MOST} keys"));
        }
        Ok(made)
    }

    /// Key number `i` of `0..keys`.
    pub fn key(&self, i: u64) -> String {
        let mut key = String::with_capacity(48);
        self.write(i, &mut key);
        key
    }

    /// Replaces what is in `key` by key number `i`.
    pub fn write(&self, i: u64, key: &mut String) {
        key.clear();
        // Writing to a String can't fail.
        let _ = match self.shape {
            Shape::Flat if self.keys <= 100_000_000 => write!(key, "file-{i:08}.bin"),
            Shape::Flat => write!(key, "file-{i:010}.bin"),
            Shape::Tree => {
                let (file, leaf) = (i % FILES, i / FILES);
                let (top, middle) = (leaf / FOLDERS / FOLDERS, leaf / FOLDERS % FOLDERS);
                write!(key, "d{top:05}/d{middle:02}/d{:02}/file-{file:02}.bin", leaf % FOLDERS)
            }
            Shape::Dvc => {
                let hash = self.hash(i);
                write!(key, "files/md5/{:02x}/{:030x}", hash >> 120, hash & (u128::MAX >> 8))
            }
        };
    }

    /// A hash that grows with `i`: evenly spread, scattered within its own step.
    fn hash(&self, i: u64) -> u128 {
        let step = u128::MAX / u128::from(self.keys.max(1));
        let scatter = u128::from(pattern::splitmix(1, i)) << 64 | u128::from(pattern::splitmix(2, i));
        u128::from(i) * step + scatter % step
    }

    /// The number of the first key that is not below `key`; the number of keys if all are.
    pub fn first_from(&self, key: &[u8]) -> u64 {
        let (mut low, mut high, mut name) = (0, self.keys, String::new());
        while low < high {
            let middle = low + (high - low) / 2;
            self.write(middle, &mut name);
            if name.as_bytes() < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The number of this key.
    pub fn find(&self, key: &[u8]) -> Option<u64> {
        let i = self.first_from(key);
        (i < self.keys && self.key(i).as_bytes() == key).then_some(i)
    }

    /// The ETag of key number `i`, which doesn't look like an MD5.
    pub fn tag(&self, i: u64) -> Tag {
        Tag::cheap(pattern::splitmix(3, i), self.size, 1)
    }

    /// Where the bytes of key number `i` begin in the pattern of seed 0: one key after the other.
    pub fn start(&self, i: u64) -> u64 {
        // Far below the end of 64 bits for any bucket that fits on Earth; beyond it starts again.
        i.wrapping_mul(self.size) & (u64::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Shape; 3] = [Shape::Flat, Shape::Tree, Shape::Dvc];

    #[test]
    fn keys_are_in_order_and_found() {
        for shape in SHAPES {
            for keys in [1, 2, 257, 10_000] {
                let made = SyntheticContent { keys, shape, size: 1 };
                let all: Vec<String> = (0..keys).map(|i| made.key(i)).collect();
                assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{shape:?} {keys}");
                for (i, key) in all.iter().enumerate() {
                    assert_eq!(made.find(key.as_bytes()), Some(i as u64));
                    assert_eq!(made.first_from(format!("{key}\0").as_bytes()), i as u64 + 1);
                }
                assert_eq!((made.first_from(b""), made.first_from(b"\xff")), (0, keys));
                assert_eq!(made.find(b"other"), None);
            }
        }
    }

    #[test]
    fn ten_million_keys_are_in_order_where_it_matters() {
        for shape in SHAPES {
            let made = SyntheticContent { keys: 10_000_000, shape, size: 1 };
            for i in [0, 99, 100, 3_199, 3_200, 102_399, 102_400, 9_999_998] {
                assert!(made.key(i) < made.key(i + 1), "{shape:?} {i}");
            }
        }
        let made = SyntheticContent { keys: 10_000_000, shape: Shape::Dvc, size: 1 };
        assert_eq!(made.key(5_000_000).len(), "files/md5/ab/".len() + 30);
        let first = made.first_from(b"files/md5/01/");
        assert!((39_000..39_100).contains(&first), "evenly spread: {first}");
    }

    #[test]
    fn properties_are_read() {
        let made = SyntheticContent::parse("keys=1000000,shape=dvc,size=1k").unwrap();
        assert_eq!(made, SyntheticContent { keys: 1_000_000, shape: Shape::Dvc, size: 1000 });
        for bad in ["keys", "keys=x", "shape=round", "size=?", "colour=red", "keys=99999999999"] {
            assert!(SyntheticContent::parse(bad).is_err(), "{bad}");
        }
    }
}
