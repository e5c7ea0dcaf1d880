//! Where packs, indexes and files that are not packed lie in the wrapped store.

use haul_core::Key;

/// Folder of packs and indexes below the wrapped root.
pub const PACKS: &str = "packs/";
/// Folder of files that are too large to be packed.
pub const FILES: &str = "files/";

/// Where the pack of an id is.
pub fn tar_key(id: &str) -> Key {
    Key::new(format!("{PACKS}{id}.tar"))
}

/// Where the index of an id is.
pub fn index_key(id: &str) -> Key {
    Key::new(format!("{PACKS}{id}.idx"))
}

/// Where a file that isn't packed is on the wrapped store.
pub fn plain_key(folder: &str, full: &[u8]) -> Key {
    Key::new([FILES.as_bytes(), folder.as_bytes(), b"/", full].concat())
}
