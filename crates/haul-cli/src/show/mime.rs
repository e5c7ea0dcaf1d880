//! Media types by a name's ending, as rclone shows them.

/// The media type of a file of this name.
pub fn of_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let Some(guess) = mime_guess::from_path(name.as_ref()).first() else { return "application/octet-stream".into() };
    match guess.type_() == mime_guess::mime::TEXT && guess.get_param("charset").is_none() {
        true => format!("{guess}; charset=utf-8"),
        false => guess.to_string(),
    }
}

/// That of a directory.
pub const DIRECTORY: &str = "inode/directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_names() {
        for (name, expected) in [
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.JPG", "image/jpeg"),
            ("a.json", "application/json"),
            ("a.none-such", "application/octet-stream"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(of_name(name.as_bytes()), expected, "{name}");
        }
    }
}
