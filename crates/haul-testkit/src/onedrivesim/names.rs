//! Which names an item may have, and when two of them are one
//! (<https://support.microsoft.com/office/restrictions-and-limitations-in-onedrive-and-sharepoint-64883a5d-228e-48f5-b3d2-eb39e07630fa>).

const WORDS: [&str; 7] = ["con", "prn", "aux", "nul", ".lock", "desktop.ini", "_vti_"];

/// Names that fold alike are one.
pub fn fold(name: &str) -> String {
    name.to_lowercase()
}

/// True for a name that an item can have.
pub fn is_legal(name: &str) -> bool {
    let lower = name.to_lowercase();
    let numbered = |word: &str| {
        lower.strip_prefix(word).is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
    };
    !(name.is_empty()
        || name.chars().any(|c| "\"*:<>?/\\|".contains(c) || c.is_control())
        || name.starts_with([' ', '~'])
        || name.ends_with([' ', '.'])
        || name.encode_utf16().count() > 255
        || WORDS.contains(&&*lower)
        || lower.contains("_vti_")
        || numbered("com")
        || numbered("lpt"))
}

/// Percent-encoded text as it is meant.
pub fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
