//! Passwords as rclone.conf holds them: hidden from a glance, not encrypted (the key is public), so the file is 0600.

use crate::{Error, Result};
use aws_lc_rs::rand;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};

type Aes256Ctr = ctr::Ctr128BE<aes::Aes256>;

/// rclone's fixed key, which anybody may know.
const KEY: [u8; 32] = [
    0x9c, 0x93, 0x5b, 0x48, 0x73, 0x0a, 0x55, 0x4d, 0x6b, 0xfd, 0x7c, 0x63, 0xc8, 0x86, 0xa9, 0x2b, 0xd3, 0x90, 0x19,
    0x8e, 0xb8, 0x12, 0x8a, 0xfb, 0xf4, 0xde, 0x16, 0x2b, 0x8b, 0x95, 0xf6, 0x38,
];
const IV: usize = 16;

const NOT_OBSCURED: &str = "the password isn't obscured: obscure it with haul obscure";

/// Obscures a password; each time it looks different.
pub fn obscure(plain: &str) -> Result<String> {
    let mut iv = [0; IV];
    if rand::fill(&mut iv).is_err() {
        return Err(Error::config("the system gives no random numbers"));
    }
    Ok(obscure_with(plain, iv))
}

fn obscure_with(plain: &str, iv: [u8; IV]) -> String {
    let mut bytes = [&iv, plain.as_bytes()].concat();
    Aes256Ctr::new(&KEY.into(), &iv.into()).apply_keystream(&mut bytes[IV..]);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The password behind an obscured one.
pub fn reveal(obscured: &str) -> Result<String> {
    let Ok(mut bytes) = URL_SAFE_NO_PAD.decode(obscured) else {
        return Err(Error::config(NOT_OBSCURED));
    };
    if bytes.len() < IV {
        return Err(Error::config("the obscured password is too short: obscure it again with haul obscure"));
    }
    let mut iv = [0; IV];
    iv.copy_from_slice(&bytes[..IV]);
    Aes256Ctr::new(&KEY.into(), &iv.into()).apply_keystream(&mut bytes[IV..]);
    match String::from_utf8(bytes.split_off(IV)) {
        Ok(plain) => Ok(plain),
        Err(_) => Err(Error::config(NOT_OBSCURED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors() {
        for (iv, plain, obscured) in [
            ([b'a'; 16], "potato", "YWFhYWFhYWFhYWFhYWFhYXMaGgIlEQ"),
            ([b'b'; 16], "potato", "YmJiYmJiYmJiYmJiYmJiYp3gcEWbAw"),
            ([b'a'; 16], "", "YWFhYWFhYWFhYWFhYWFhYQ"),
        ] {
            assert_eq!(obscure_with(plain, iv), obscured);
            assert_eq!(reveal(obscured).unwrap(), plain);
        }
    }

    #[test]
    fn each_time_it_looks_different() {
        let (a, b) = (obscure("пароль").unwrap(), obscure("пароль").unwrap());
        assert_ne!(a, b);
        assert_eq!(reveal(&a).unwrap(), "пароль");
    }

    #[test]
    fn what_is_not_obscured_is_refused() {
        for bad in ["!", "aaaa", "hunter2!"] {
            assert!(reveal(bad).is_err(), "{bad}");
        }
    }
}
