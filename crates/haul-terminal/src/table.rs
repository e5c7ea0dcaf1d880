//! Options of a front end that reads its words by itself, as another program has them: its parser, its help, the reference and
//! the man page go by one table.

/// haul's support of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does what it does in that program.
    Works,
    /// It is taken, and changes nothing.
    NoEffect,
    /// It is refused.
    Refused,
}

/// Headings for the support of options.
pub const TITLES: [(Support, &str); 3] = [
    (Support::Works, "Options"),
    (Support::NoEffect, "Accepted without effect"),
    (Support::Refused, "Not supported (error)"),
];

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// Its letter.
    pub short: Option<char>,
    /// Its name, by which the parser knows it.
    pub long: &'static str,
    /// Name of its value, if it has one.
    pub value: Option<&'static str>,
    /// haul's support of it.
    pub here: Support,
    /// One line.
    pub help: &'static str,
}
