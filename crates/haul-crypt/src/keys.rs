//! The three keys that a password makes.

use haul_core::{Error, ErrorKind, Result};
use std::fmt;

/// The salt where the user gives no second password: rclone's.
const SALT: [u8; 16] = [0xa8, 0x0d, 0xf4, 0x3a, 0x8f, 0xbd, 0x03, 0x08, 0xa7, 0xca, 0xb8, 0x3e, 0x58, 0x1f, 0x86, 0xb1];
/// scrypt's cost as rclone sets it: N = 2¹⁴, r = 8, p = 1; 16 MiB of memory and some 50 ms.
const COST: (u8, u32, u32) = (14, 8, 1);

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
    /// Errors: none that a caller can cause.
    pub fn new(password: &str, second: &str) -> Result<Keys> {
        let mut made = [0; 80];
        if !password.is_empty() {
            let salt = if second.is_empty() { &SALT[..] } else { second.as_bytes() };
            let (log_n, r, p) = COST;
            let wrong = |why: String| Error::new(ErrorKind::Io, "open", format!("scrypt: {why}"));
            let cost = scrypt::Params::new(log_n, r, p).map_err(|e| wrong(e.to_string()))?;
            scrypt::scrypt(password.as_bytes(), salt, &cost, &mut made).map_err(|e| wrong(e.to_string()))?;
        }
        let mut keys = Keys { data: [0; 32], name: [0; 32], tweak: [0; 16] };
        keys.data.copy_from_slice(&made[..32]);
        keys.name.copy_from_slice(&made[32..64]);
        keys.tweak.copy_from_slice(&made[64..]);
        Ok(keys)
    }
}
