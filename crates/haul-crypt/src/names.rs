//! Names as the other store has them, in rclone's ways: encrypted, obfuscated, or with a suffix.

mod obfuscate;
mod version;

use crate::{
    base32768,
    eme::{self, Direction},
    keys::Keys,
};
use aes::{Aes256, cipher::KeyInit};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use data_encoding::BASE32HEX_NOPAD;
use haul_core::{Error, ErrorKind, Key, Result, encoding::Encoding as Standard};

const STANDARD: Standard = Standard::STANDARD;

/// Treatment of names (`filename_encryption`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Encrypted.
    Standard,
    /// Letters are exchanged: hides them from a glance.
    Obfuscate,
    /// They stay, with a suffix.
    Off,
}

/// How encrypted bytes are written (`filename_encoding`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 4648's hex alphabet in small letters; upper case reads as well.
    Base32,
    /// For stores that tell case apart.
    Base64,
    /// For stores that count characters in UTF-16.
    Base32768,
}

/// How names go.
pub struct Names {
    /// Treatment of names.
    pub mode: Mode,
    /// Directories' names too (`directory_name_encryption`).
    pub dirs: bool,
    /// How encrypted ones are written.
    pub encoding: Encoding,
    /// Suffix of a name that stays plain; empty for none.
    pub suffix: Vec<u8>,
    cipher: Aes256,
    tweak: [u8; 16],
    /// The sum of the key's bytes, which obfuscated names are shifted by.
    shift: u32,
}

/// Why a name isn't one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// In words.
    pub why: &'static str,
    /// It has the form of ours: the password may be wrong.
    pub looks_like_ours: bool,
}

impl Foreign {
    /// One that is none of ours under any password.
    const fn never(why: &'static str) -> Foreign {
        Foreign { why, looks_like_ours: false }
    }

    /// One that another password may decrypt.
    const fn so_far(why: &'static str) -> Foreign {
        Foreign { why, looks_like_ours: true }
    }
}

impl Names {
    /// Names under these keys.
    pub fn new(keys: &Keys, mode: Mode, dirs: bool, encoding: Encoding, suffix: Vec<u8>) -> Names {
        Names {
            mode,
            dirs,
            encoding,
            suffix,
            cipher: Aes256::new(&keys.name.into()),
            tweak: keys.tweak,
            shift: keys.name.iter().map(|byte| u32::from(*byte)).sum(),
        }
    }

    /// A key as the other store has it; of a directory it ends in `/` too.
    ///
    /// Errors: `Invalid` for a name that is too long to be encrypted.
    pub fn hidden(&self, key: &Key) -> Result<Key> {
        let bytes = key.as_bytes();
        let (path, is_dir) = match bytes.strip_suffix(b"/") {
            Some(path) => (path, true),
            None => (bytes, false),
        };
        if path.is_empty() {
            return Ok(key.clone());
        }
        let mut out: Vec<u8> = Vec::with_capacity(path.len() * 2 + 32);
        let mut parts = path.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() && !is_dir {
                out.extend(self.file(part).map_err(|e| e.with_key(key))?);
            } else {
                out.extend(self.dir(part).map_err(|e| e.with_key(key))?);
                out.push(b'/');
            }
        }
        Ok(Key::new(out))
    }

    /// A file's name as the other store has it.
    ///
    /// Errors: as [`Names::hidden`].
    pub fn file(&self, name: &[u8]) -> Result<Vec<u8>> {
        match self.mode {
            Mode::Off => {
                let hidden = [name, &self.suffix].concat();
                match self.plain_file(&hidden) {
                    Ok(plain) if plain == name => Ok(hidden),
                    _ => Err(Error::new(
                        ErrorKind::Invalid,
                        "encrypt",
                        "the name would be taken for that of an older version",
                    )),
                }
            }
            Mode::Standard | Mode::Obfuscate => self.last(name),
        }
    }

    /// A directory's name as the other store has it. The date of a version is hidden in it, since rclone leaves it readable only in the
    /// last name of a path, so that a directory would have two names.
    fn dir(&self, name: &[u8]) -> Result<Vec<u8>> {
        if self.mode == Mode::Off || !self.dirs { Ok(name.to_vec()) } else { self.part(name) }
    }

    /// A file's name, whose date of a version stays readable.
    fn last(&self, name: &[u8]) -> Result<Vec<u8>> {
        match version::split(name) {
            Some((rest, date)) => Ok(version::join(&self.part(&rest)?, &date)),
            None => self.part(name),
        }
    }

    /// A name is encrypted in rclone's standard encoding, and decrypts to one.
    fn part(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name.is_empty() {
            return Ok(Vec::new());
        }
        let odd = || Error::new(ErrorKind::Invalid, "encrypt", "the name would come back as another: rename it");
        let hidden = self.hidden_part(&STANDARD.encode(name).ok_or_else(odd)?)?;
        Ok(STANDARD.decode(&hidden).into_owned())
    }

    fn hidden_part(&self, name: &[u8]) -> Result<Vec<u8>> {
        if self.mode == Mode::Obfuscate {
            return Ok(obfuscate::hide(name, self.shift));
        }
        let pad = eme::BLOCK - name.len() % eme::BLOCK;
        let mut bytes = name.to_vec();
        bytes.resize(name.len() + pad, pad as u8);
        if bytes.len() > eme::MOST {
            return Err(Error::new(ErrorKind::Invalid, "encrypt", "the name is too long to be encrypted"));
        }
        eme::transform(&self.cipher, &self.tweak, &mut bytes, Direction::Encrypt);
        let text = match self.encoding {
            Encoding::Base32 => BASE32HEX_NOPAD.encode(&bytes).to_ascii_lowercase(),
            Encoding::Base64 => URL_SAFE_NO_PAD.encode(&bytes),
            Encoding::Base32768 => base32768::encode(&bytes),
        };
        Ok(text.into_bytes())
    }

    /// The plain name of a file of the other store.
    ///
    /// Errors: it is none of ours.
    pub fn plain_file(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        if self.mode != Mode::Off {
            return self.plain_last(name);
        }
        match name.strip_suffix(&self.suffix[..]).filter(|plain| !plain.is_empty()) {
            Some(plain) if version::split(plain).is_none_or(|(rest, _)| !rest.is_empty()) => Ok(plain.to_vec()),
            _ => Err(Foreign::never("it has another suffix")),
        }
    }

    /// The plain name of a directory of the other store.
    ///
    /// Errors: as [`Names::plain_file`].
    pub fn plain_dir(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        if self.mode == Mode::Off || !self.dirs { Ok(name.to_vec()) } else { self.plain_part(name) }
    }

    fn plain_last(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        match version::split(name) {
            Some((rest, date)) if rest.is_empty() => Ok(date),
            Some((rest, date)) => Ok(version::join(&self.plain_part(&rest)?, &date)),
            None => self.plain_part(name),
        }
    }

    fn plain_part(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        let name = STANDARD.encode(name).ok_or(Foreign::never("it is no name that rclone writes"))?;
        let plain = match self.mode {
            Mode::Obfuscate => obfuscate::show(&name, self.shift).ok_or(Foreign::so_far("it isn't obfuscated"))?,
            _ => self.decrypted(&name)?,
        };
        let plain = STANDARD.decode(&plain).into_owned();
        let possible = !plain.is_empty() && !plain.contains(&b'/') && !plain.contains(&0);
        if possible && plain != b"." && plain != b".." {
            Ok(plain)
        } else {
            Err(Foreign::so_far("it decrypts to no name"))
        }
    }

    fn decrypted(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        let decoded = match self.encoding {
            Encoding::Base32 => BASE32HEX_NOPAD.decode(&name.to_ascii_uppercase()).ok(),
            Encoding::Base64 => URL_SAFE_NO_PAD.decode(name).ok(),
            Encoding::Base32768 => std::str::from_utf8(name).ok().and_then(base32768::decode),
        };
        let mut bytes = decoded.ok_or(Foreign::never("it isn't encoded as encrypted names are"))?;
        if bytes.is_empty() || bytes.len() % eme::BLOCK != 0 || bytes.len() > eme::MOST {
            return Err(Foreign::never("it has another length than encrypted names have"));
        }
        eme::transform(&self.cipher, &self.tweak, &mut bytes, Direction::Decrypt);
        let pad = bytes.last().map_or(0, |pad| usize::from(*pad));
        let whole = bytes.len().checked_sub(pad).filter(|_| (1..=eme::BLOCK).contains(&pad));
        match whole {
            Some(end) if bytes[end..].iter().all(|byte| usize::from(*byte) == pad) => {
                bytes.truncate(end);
                Ok(bytes)
            }
            _ => Err(Foreign::so_far("it was encrypted with another password")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(mode: Mode, encoding: Encoding) -> Names {
        let keys = Keys::new("", "").unwrap();
        Names::new(&keys, mode, true, encoding, b".bin".to_vec())
    }

    /// Vectors of rclone's own format: keys of zeros.
    #[test]
    fn names_are_encrypted_as_in_rclone() {
        let names = names(Mode::Standard, Encoding::Base32);
        for (plain, hidden) in [("1", "p0e52nreeaj0a5ea7s64m4j72s"), ("12", "l42g6771hnv3an9cgc8cr2n1ng")] {
            assert_eq!(names.hidden(&Key::new(plain)).unwrap(), Key::new(hidden));
            assert_eq!(names.plain_file(hidden.as_bytes()), Ok(plain.into()));
            assert_eq!(names.plain_file(hidden.to_uppercase().as_bytes()), Ok(plain.into()));
        }
        assert_eq!(
            names.hidden(&Key::new("1/12")).unwrap(),
            Key::new("p0e52nreeaj0a5ea7s64m4j72s/l42g6771hnv3an9cgc8cr2n1ng")
        );
        assert_eq!(names.hidden(&Key::new("1/")).unwrap(), Key::new("p0e52nreeaj0a5ea7s64m4j72s/"));
        assert_eq!(
            names.hidden(&Key::new("1-v2001-02-03-040506-123")).unwrap(),
            Key::new("p0e52nreeaj0a5ea7s64m4j72s-v2001-02-03-040506-123")
        );
    }

    #[test]
    fn a_name_that_could_not_be_read_again_is_refused() {
        let off = names(Mode::Off, Encoding::Base32);
        assert_eq!(
            off.hidden(&Key::new("a-v2001-02-03-040506-123")).unwrap(),
            Key::new("a-v2001-02-03-040506-123.bin")
        );
        assert_eq!(off.hidden(&Key::new("-v2001-02-03-040506-123")).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn foreign_names_are_refused() {
        let names = names(Mode::Standard, Encoding::Base32);
        for name in ["", "x", "readme.txt", "p0e52nreeaj0a5ea7s64m4j72t", "p0e52nreeaj0a5ea7s64m4j7", "vvvv"] {
            assert!(names.plain_file(name.as_bytes()).is_err(), "{name}");
        }
        let plain = super::tests::names(Mode::Off, Encoding::Base32);
        assert_eq!(plain.plain_file(b"a.bin"), Ok(b"a".to_vec()));
        assert!(plain.plain_file(b".bin").is_err());
        assert!(plain.plain_file(b"a.txt").is_err());
        assert_eq!(plain.plain_dir(b"d"), Ok(b"d".to_vec()));
    }

    #[test]
    fn directories_names_may_stay() {
        let mut names = names(Mode::Standard, Encoding::Base32);
        names.dirs = false;
        assert_eq!(names.hidden(&Key::new("d/1")).unwrap(), Key::new("d/p0e52nreeaj0a5ea7s64m4j72s"));
        assert_eq!(names.hidden(&Key::new("d/1/")).unwrap(), Key::new("d/1/"));
    }

    proptest! {
        #[test]
        fn names_come_back(
            name in prop::collection::vec(1u8.., 1..300),
            mode in prop::sample::select(vec![Mode::Standard, Mode::Obfuscate, Mode::Off]),
            encoding in prop::sample::select(vec![Encoding::Base32, Encoding::Base64, Encoding::Base32768]),
        ) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let names = names(mode, encoding);
            let hidden = names.file(&name).unwrap();
            prop_assert_eq!(names.plain_file(&hidden), Ok(name.clone()));
            let hidden = names.dir(&name).unwrap();
            prop_assert_eq!(names.plain_dir(&hidden), Ok(name));
        }
    }
}
