//! Where an index was found to be wrong, and so isn't believed. Pure.

use haul_core::Key;

/// Where an index isn't believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Doubts {
    /// Nowhere.
    #[default]
    None,
    /// In one folder at the top; with its slash.
    Below(Vec<u8>),
    /// Anywhere.
    All,
}

impl Doubts {
    /// The index was wrong about this key. Whoever changed one key may have changed others beside it: all of the folder at the top that
    /// holds it; and where two folders are wrong, or a key that is in none, anything may be.
    pub fn add(&mut self, key: &[u8]) {
        let top = key.iter().position(|byte| *byte == b'/').map(|at| &key[..=at]);
        *self = match (&*self, top) {
            (Doubts::None, Some(top)) => Doubts::Below(top.to_vec()),
            (Doubts::Below(folder), Some(top)) if folder == top => return,
            _ => Doubts::All,
        };
    }

    /// Takes over what another one doubts.
    pub fn join(&mut self, other: Doubts) {
        *self = match (std::mem::take(self), other) {
            (Doubts::None, one) | (one, Doubts::None) => one,
            (Doubts::Below(a), Doubts::Below(b)) if a == b => Doubts::Below(a),
            _ => Doubts::All,
        };
    }

    /// True if the index isn't trusted for `key`.
    pub fn holds(&self, key: &[u8]) -> bool {
        match self {
            Doubts::None => false,
            Doubts::Below(folder) => key.starts_with(folder),
            Doubts::All => true,
        }
    }

    /// Nothing was wrong.
    pub fn is_empty(&self) -> bool {
        *self == Doubts::None
    }

    /// The part that is checked again, as text for people.
    pub fn what(&self) -> String {
        match self {
            Doubts::None => "nothing".into(),
            Doubts::Below(folder) => format!("all below {}", Key::new(folder)),
            Doubts::All => "everything".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_key_is_one_folder_and_two_folders_are_all() {
        let mut doubts = Doubts::default();
        assert!(!doubts.holds(b"a/b") && doubts.is_empty());
        doubts.add(b"a/b/c");
        doubts.add(b"a/x");
        assert!(doubts.holds(b"a/") && !doubts.holds(b"ab") && doubts.what() == "all below a/");
        doubts.add(b"b/x");
        assert!(doubts == Doubts::All && doubts.holds(b"ab"));
        let mut flat = Doubts::default();
        flat.add(b"flat");
        assert_eq!(flat, Doubts::All);
        let below = |folder: &[u8]| Doubts::Below(folder.to_vec());
        for (a, b, both) in [
            (Doubts::None, below(b"a/"), below(b"a/")),
            (below(b"a/"), Doubts::None, below(b"a/")),
            (below(b"a/"), below(b"a/"), below(b"a/")),
            (below(b"a/"), below(b"b/"), Doubts::All),
            (Doubts::All, below(b"b/"), Doubts::All),
        ] {
            let mut joined = a;
            joined.join(b);
            assert_eq!(joined, both);
        }
    }
}
