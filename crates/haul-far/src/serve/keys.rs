//! Keys, as the near end has them and as the store of a folder does.

use super::OpenFolder;
use haul_core::{Entry, Error, Key, Result};

/// A key of the near end's, as the store has it.
pub fn far(folder: &OpenFolder, key: &Key) -> Key {
    if folder.below.is_empty() { key.clone() } else { key.below(&folder.below) }
}

/// A key of the store's, as the near end has it.
pub fn near_key(folder: &OpenFolder, key: &Key) -> Key {
    key.as_bytes().strip_prefix(&folder.below[..]).map_or_else(|| key.clone(), Key::new)
}

/// An error of the store's, with the near end's key.
pub fn near(folder: &OpenFolder, error: Error) -> Error {
    match error.key().map(|key| near_key(folder, key)) {
        Some(key) => error.with_key(&key),
        None => error,
    }
}

/// An entry of the store, with the near end's key.
pub fn near_entry(folder: &OpenFolder, entry: Entry) -> Entry {
    Entry { key: near_key(folder, &entry.key), ..entry }
}

/// Answers whose errors name keys of the near end.
pub fn near_each<T>(folder: &OpenFolder, answers: Vec<Result<T>>) -> Vec<Result<T>> {
    answers.into_iter().map(|answer| answer.map_err(|error| near(folder, error))).collect()
}
