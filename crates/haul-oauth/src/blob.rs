//! How a remote's options go from one machine to another, as `rclone authorize` takes and prints them: JSON in base64, without padding.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use haul_core::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// Options as one word.
pub fn encode(options: &BTreeMap<String, String>) -> String {
    if options.is_empty() {
        return String::new();
    }
    STANDARD_NO_PAD.encode(serde_json::to_vec(options).unwrap_or_default())
}

/// The options in a word; white space, as a terminal puts into long lines, doesn't count.
///
/// Errors: `Invalid`.
pub fn decode(text: &str) -> Result<BTreeMap<String, String>> {
    let bad = || Error::new(ErrorKind::Invalid, "config", "this isn't what haul or rclone authorize printed");
    let text: String = text.split_whitespace().collect();
    let bytes = STANDARD_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| bad())?;
    serde_json::from_slice(&bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_rclone() {
        let options: BTreeMap<_, _> =
            [("scope", "drive"), ("client_id", "x")].map(|(a, b)| (a.into(), b.into())).into();
        let word = encode(&options);
        assert_eq!(word, "eyJjbGllbnRfaWQiOiJ4Iiwic2NvcGUiOiJkcml2ZSJ9");
        assert_eq!(decode(&word).unwrap(), options);
        assert_eq!(decode(" eyJjbGllbnRfaWQiOiJ4\n Iiwic2NvcGUiOiJkcml2ZSJ9\n").unwrap(), options);
        assert_eq!(encode(&BTreeMap::new()), "");
        for bad in ["", "!", "e30x", "WzFd"] {
            assert_eq!(decode(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
