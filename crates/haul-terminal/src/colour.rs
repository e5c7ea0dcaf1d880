//! Colours of the terminal.

/// Errors.
pub const RED: &str = "\x1b[31m";
/// Notices.
pub const YELLOW: &str = "\x1b[33m";
/// Headings.
pub const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The text in a colour, if there are colours.
pub fn paint(text: &str, colour: &str, on: bool) -> String {
    if on { format!("{colour}{text}{PLAIN}") } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_colour_where_there_are_colours() {
        assert_eq!((paint("x", RED, true), paint("x", RED, false)), ("\x1b[31mx\x1b[0m".into(), "x".into()));
    }
}
