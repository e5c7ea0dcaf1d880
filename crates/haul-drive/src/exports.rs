//! Exports of documents that were made to learn their size, kept for the next read.

use bytes::Bytes;
use haul_core::Version;
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// Bytes of exports that are kept until they are read.
const KEPT: usize = 64 << 20;

/// Exports that were made to learn how long they are.
#[derive(Debug, Default)]
pub struct Exports(Mutex<VecDeque<(Version, Bytes)>>);

impl Exports {
    /// The latest stays in any case.
    pub fn keep(&self, version: &Version, bytes: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, _)| of != version);
        kept.push_back((version.clone(), bytes.clone()));
        while kept.len() > 1 && kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > KEPT {
            kept.pop_front();
        }
    }

    /// One that is read as a whole isn't kept any longer.
    pub fn get(&self, version: &Version, whole: bool) -> Option<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(of, _)| of == version)?;
        match whole {
            true => kept.remove(at).map(|(_, bytes)| bytes),
            false => kept.get(at).map(|(_, bytes)| bytes.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_kept_up_to_a_bound() {
        let exports = Exports::default();
        let version = |n: u8| Version::new([n]);
        for n in 0..5 {
            exports.keep(&version(n), &Bytes::from(vec![n; KEPT / 3]));
        }
        assert!(exports.get(&version(0), false).is_none());
        assert_eq!(exports.get(&version(4), false).unwrap()[0], 4);
        assert!(exports.get(&version(4), true).is_some() && exports.get(&version(4), true).is_none());
        exports.keep(&version(9), &Bytes::from(vec![9; KEPT + 1]));
        assert!(exports.get(&version(9), false).is_some() && exports.get(&version(3), false).is_none());
    }
}
