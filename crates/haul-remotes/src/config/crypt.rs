//! An encrypted config file, in rclone's form: a marker line, then base64 of nonce and NaCl secretbox.

use crate::{Error, Result};
use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use crypto_secretbox::{
    XSalsa20Poly1305,
    aead::{Aead as _, KeyInit as _},
};
use std::fmt;
use unicode_normalization::UnicodeNormalization as _;

const MARKER: &str = "RCLONE_ENCRYPT_V0:";
/// Any later version of the format; haul can't read it.
const ANY_VERSION: &str = "RCLONE_ENCRYPT_V";
const NONCE: usize = 24;

/// The key that a password makes. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// The key of a password. Different ways of writing one letter in Unicode make one key.
    pub fn new(password: &str) -> Result<Secret> {
        let normal: String = password.nfkc().collect();
        if normal.trim().is_empty() {
            return Err(Error::config("the configuration's password is empty"));
        }
        let hash = digest(&SHA256, format!("[{normal}][rclone-config]").as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(hash.as_ref());
        Ok(Secret(key))
    }
}

/// Is this the text of an encrypted file?
pub fn is_encrypted(text: &str) -> bool {
    first_line(text).is_some_and(|(line, _)| line.starts_with(ANY_VERSION))
}

/// The text behind an encrypted file; `None` when the key is wrong.
pub fn decrypt(text: &str, secret: &Secret) -> Result<Option<String>> {
    let Some((MARKER, body)) = first_line(text) else {
        return Err(Error::config(format!("it is encrypted in a newer way than {MARKER}")));
    };
    let packed: String = body.split_whitespace().collect();
    let damaged = |why: &str| Error::config(format!("{why}: the file is damaged"));
    let bytes = STANDARD.decode(packed).map_err(|_| damaged("the encrypted part isn't base64"))?;
    let Some((nonce, sealed)) = bytes.split_at_checked(NONCE) else {
        return Err(damaged("the encrypted part is too short"));
    };
    let mut fixed = [0; NONCE];
    fixed.copy_from_slice(nonce);
    let Ok(plain) = XSalsa20Poly1305::new(&secret.0.into()).decrypt(&fixed.into(), sealed) else { return Ok(None) };
    String::from_utf8(plain).map(Some).map_err(|_| Error::config("the decrypted configuration isn't UTF-8"))
}

/// The text of an encrypted file.
pub fn encrypt(plain: &str, secret: &Secret) -> Result<String> {
    let mut nonce = [0; NONCE];
    if rand::fill(&mut nonce).is_err() {
        return Err(Error::config("the system gives no random numbers"));
    }
    let sealed = XSalsa20Poly1305::new(&secret.0.into()).encrypt(&nonce.into(), plain.as_bytes());
    let sealed = sealed.map_err(|_| Error::config("can't encrypt the configuration"))?;
    let body = STANDARD.encode([&nonce[..], &sealed].concat());
    Ok(format!("# Encrypted rclone configuration File\n\n{MARKER}\n{body}\n"))
}

/// The first line that is neither empty nor a comment, and what follows it.
fn first_line(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        if !line.is_empty() && !line.starts_with(['#', ';']) {
            return Some((line, after));
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by rclone 1.75.1 with the password `correct horse é `.
    const BY_RCLONE: &str = include_str!("../../tests/data/encrypted.conf");

    #[test]
    fn a_file_that_rclone_encrypted_is_read() {
        assert!(is_encrypted(BY_RCLONE));
        let secret = Secret::new("correct horse é ").unwrap();
        let plain = decrypt(BY_RCLONE, &secret).unwrap().unwrap();
        assert!(plain.contains("[enc]\ntype = local\n"), "{plain}");
        // The equal letter in two code points.
        let other = Secret::new("correct horse e\u{301} ").unwrap();
        assert_eq!(secret, other);
    }

    #[test]
    fn a_wrong_password_is_told_from_a_damaged_file() {
        let secret = Secret::new("wrong").unwrap();
        assert!(decrypt(BY_RCLONE, &secret).unwrap().is_none());
        for (text, why) in [
            ("RCLONE_ENCRYPT_V0:\n!!\n", "the encrypted part isn't base64: the file is damaged"),
            ("RCLONE_ENCRYPT_V0:\nYWJj\n", "the encrypted part is too short: the file is damaged"),
            ("RCLONE_ENCRYPT_V1:\nYWJj\n", "it is encrypted in a newer way than RCLONE_ENCRYPT_V0:"),
        ] {
            assert!(is_encrypted(text));
            assert_eq!(decrypt(text, &secret).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn what_was_encrypted_comes_back() {
        let secret = Secret::new("p").unwrap();
        let text = encrypt("[photos]\ntype = s3\n", &secret).unwrap();
        // Long enough that base64 doesn't spell it by chance.
        assert!(is_encrypted(&text) && !text.contains("photos"));
        assert_eq!(decrypt(&text, &secret).unwrap().as_deref(), Some("[photos]\ntype = s3\n"));
        assert!(!is_encrypted("# c\n[a]\n") && !is_encrypted(""));
        assert!(Secret::new(" ").is_err());
    }
}
