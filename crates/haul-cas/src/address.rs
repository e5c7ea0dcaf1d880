//! Where content is in a cache or at a remote: its MD5, whether it is a directory's manifest, and by which layout.
//! Pure.

use haul_core::{Algo, Key, hash};

/// How a cache or remote names what it holds. In the order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// DVC 2 and before: `xx/…`, MD5 after line ends of text were made Unix's (`md5-dos2unix`).
    V2,
    /// DVC 3: `files/md5/xx/…`, plain MD5.
    V3,
}

impl Layout {
    /// The hash by which it names files.
    pub fn algo(self) -> Algo {
        match self {
            Layout::V2 => Algo::Md5Text,
            Layout::V3 => Algo::Md5,
        }
    }
}

/// An MD5.
pub type Md5 = [u8; 16];

/// The ending of a manifest's name.
pub const DIR: &str = ".dir";
const V3_PREFIX: &[u8] = b"files/md5/";

/// One file of a cache. The order of addresses is that of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Names it so.
    pub layout: Layout,
    /// Of the content, or of the manifest.
    pub md5: Md5,
    /// A directory's manifest.
    pub dir: bool,
}

impl Address {
    /// The address of a file's content.
    pub fn file(layout: Layout, md5: Md5) -> Self {
        Address { layout, md5, dir: false }
    }

    /// Reads what `.dvc` files write: 32 lower-case hexadecimal digits, with `.dir` for a directory.
    pub fn parse(layout: Layout, text: &str) -> Option<Self> {
        let (hex, dir) = text.strip_suffix(DIR).map_or((text, false), |hex| (hex, true));
        Some(Address { layout, md5: parse_md5(hex)?, dir })
    }

    /// True when its MD5 is that of the bytes; the older layout's isn't, except for manifests, so text of two sizes has one name.
    pub fn names_bytes(&self) -> bool {
        self.algo() == Algo::Md5
    }

    /// The hash of its content that it is: manifests are named by their bytes in both layouts.
    pub fn algo(&self) -> Algo {
        if self.dir { Algo::Md5 } else { self.layout.algo() }
    }

    /// As `.dvc` files write it.
    pub fn text(&self) -> String {
        hash::to_hex(&self.md5) + if self.dir { DIR } else { "" }
    }

    /// The key below the cache's or remote's root.
    pub fn key(&self) -> Key {
        let [fan, rest @ ..] = &self.md5;
        let mut key = Vec::with_capacity(V3_PREFIX.len() + 33 + DIR.len());
        key.extend_from_slice(if self.layout == Layout::V3 { V3_PREFIX } else { b"" });
        key.extend(hash::hex_digits(*fan));
        key.push(b'/');
        key.extend(rest.iter().flat_map(|byte| hash::hex_digits(*byte)));
        key.extend_from_slice(if self.dir { DIR.as_bytes() } else { b"" });
        Key::new(key)
    }

    /// The address that a key below the root stands for; `None` for anything else that lies there.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let (layout, rest) = key.strip_prefix(V3_PREFIX).map_or((Layout::V2, key), |rest| (Layout::V3, rest));
        let (rest, dir) = rest.strip_suffix(DIR.as_bytes()).map_or((rest, false), |rest| (rest, true));
        let [a, b, b'/', name @ ..] = rest else { return None };
        Some(Address { layout, md5: of_digits([a, b].into_iter().chain(name))?, dir })
    }

    /// True when both lie in one folder.
    pub fn shares_folder(&self, other: &Address) -> bool {
        self.layout == other.layout && self.md5[0] == other.md5[0]
    }
}

/// 32 lower-case hexadecimal digits.
pub fn parse_md5(hex: &str) -> Option<Md5> {
    of_digits(hex.as_bytes().iter())
}

fn of_digits<'a>(mut digits: impl Iterator<Item = &'a u8>) -> Option<Md5> {
    let mut digit = || match digits.next()? {
        b @ b'0'..=b'9' => Some(b - b'0'),
        b @ b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut md5 = Md5::default();
    for byte in &mut md5 {
        *byte = digit()? << 4 | digit()?;
    }
    digits.next().is_none().then_some(md5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_texts_go_both_ways() {
        for (layout, text, key) in [
            (Layout::V3, "b1946ac92492d2347c6235b4d2611184", "files/md5/b1/946ac92492d2347c6235b4d2611184"),
            (Layout::V3, "217787b8d85f21cb1f5a3078574aabb6.dir", "files/md5/21/7787b8d85f21cb1f5a3078574aabb6.dir"),
            (Layout::V2, "f002d69cdbd0d536fcd0a4eea1cb2091.dir", "f0/02d69cdbd0d536fcd0a4eea1cb2091.dir"),
        ] {
            let address = Address::parse(layout, text).unwrap();
            assert_eq!(address.text(), text);
            assert_eq!(address.key(), Key::new(key));
            assert_eq!(Address::of_key(key.as_bytes()), Some(address));
        }
    }

    #[test]
    fn addresses_are_in_the_order_of_their_keys() {
        let mut all = Vec::new();
        for layout in [Layout::V3, Layout::V2] {
            for first in [0, 9, 0xa0, 0xff] {
                for dir in [true, false] {
                    let mut md5 = [0x5a; 16];
                    md5[0] = first;
                    all.push(Address { layout, md5, dir });
                }
            }
        }
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0].key() < two[1].key()), "{all:?}");
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "b1946ac92492d2347c6235b4d261118",
            "b1946ac92492d2347c6235b4d26111845",
            "B1946AC92492D2347C6235B4D2611184",
            "zz",
            ".dir",
        ] {
            assert_eq!(Address::parse(Layout::V3, text), None, "{text}");
        }
        for key in ["files/md5/b1", "b19/46ac92492d2347c6235b4d2611184", "runs/ab/cd", "files/md5/b1/x.tmp"] {
            assert_eq!(Address::of_key(key.as_bytes()), None, "{key}");
        }
    }
}
