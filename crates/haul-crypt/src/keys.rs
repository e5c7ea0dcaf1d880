//! The three keys that a password makes.

// The only unsafe code here: calling AWS-LC's scrypt, which has no safe interface. It takes its memory from the system and gives it back,
// where a scrypt of Rust's leaves 16 MiB with the allocator for as long as the process lasts.
#![allow(unsafe_code)]

use haul_core::{Error, ErrorKind, Result};
use std::fmt;

/// The salt where the user gives no second password: rclone's.
const SALT: [u8; 16] = [0xa8, 0x0d, 0xf4, 0x3a, 0x8f, 0xbd, 0x03, 0x08, 0xa7, 0xca, 0xb8, 0x3e, 0x58, 0x1f, 0x86, 0xb1];
/// scrypt's cost as rclone sets it: N = 2¹⁴, r = 8, p = 1; 16 MiB of memory and some 50 ms.
const COST: (u64, u64, u64) = (1 << 14, 8, 1);
/// Bytes of memory that it may take; it needs 128 · N · r and a little more.
const MEMORY: usize = 20 << 20;
/// Bytes that are made: those of [`Keys`].
const MADE: usize = 80;

/// scrypt (RFC 7914) of a password and a salt.
///
/// Errors: out of memory.
fn scrypt(password: &[u8], salt: &[u8], (n, r, p): (u64, u64, u64)) -> Result<[u8; MADE]> {
    let mut made = [0; MADE];
    // SAFETY: each pointer comes with its own length, and nothing is kept.
    let done = unsafe {
        aws_lc_sys::EVP_PBE_scrypt(
            password.as_ptr().cast(),
            password.len(),
            salt.as_ptr(),
            salt.len(),
            n,
            r,
            p,
            MEMORY,
            made.as_mut_ptr(),
            MADE,
        )
    };
    match done {
        1 => Ok(made),
        _ => {
            Err(Error::new(ErrorKind::Io, "open", "the keys can't be made of the password: there is no memory for it"))
        }
    }
}

/// Keys of content and names. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Of content.
    pub data: [u8; 32],
    /// Of names.
    pub name: [u8; 32],
    /// Of names too.
    pub tweak: [u8; 16],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    /// Keys of a password and of the second one, which may be empty. An empty password makes keys of zeros, as in rclone.
    ///
    /// Errors: out of memory.
    pub fn new(password: &str, second: &str) -> Result<Keys> {
        let salt = if second.is_empty() { &SALT[..] } else { second.as_bytes() };
        let made = match password {
            "" => [0; MADE],
            _ => scrypt(password.as_bytes(), salt, COST)?,
        };
        let mut keys = Keys { data: [0; 32], name: [0; 32], tweak: [0; 16] };
        keys.data.copy_from_slice(&made[..32]);
        keys.name.copy_from_slice(&made[32..64]);
        keys.tweak.copy_from_slice(&made[64..]);
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::hash::to_hex;

    /// The examples of RFC 7914 that fit, as far as they go.
    #[test]
    fn scrypt_is_that_of_the_rfc() {
        let made = |password: &str, salt: &str, cost| {
            to_hex(&scrypt(password.as_bytes(), salt.as_bytes(), cost).unwrap()[..32])
        };
        let first = "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442";
        assert_eq!(made("", "", (16, 1, 1)), first);
        let third = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2";
        assert_eq!(made("pleaseletmein", "SodiumChloride", COST), third);
    }

    #[test]
    fn a_cost_beyond_the_memory_is_an_error() {
        assert!(scrypt(b"x", b"y", (1 << 15, 8, 1)).is_err());
    }
}
