//! Terminal output for every front end: lines beside a live display, colours, standard output, tables of options. A front end
//! finds out whether there are colours and a display; nothing here reads arguments or the environment.

pub mod colour;
mod out;
pub mod print;
mod screen;
pub mod table;

pub use out::Output;
pub use screen::{Screen, TerminalFeatures};

/// Control characters and line breaks out: what a store or file name holds must not draw on the terminal.
pub fn one_line(text: &str) -> String {
    text.trim_end().chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_draw_on_the_terminal() {
        assert_eq!(one_line("a\x1b[2Jb\nc\n"), "a\u{FFFD}[2Jb\u{FFFD}c");
    }
}
