//! Whether the terminal has colours. Asked before the flags are read, since a mistake in them is shown too.

use crate::environment::env;
pub use haul_terminal::colour::{BOLD, RED, YELLOW, paint};
use haul_terminal::{Screen, TerminalFeatures};
use std::{
    ffi::OsString,
    io::{IsTerminal as _, stderr, stdout},
};

/// `--color`, with rclone's values.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Where a terminal shows them, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Nowhere
    Never,
    /// Also in pipes and files that take standard output or standard error
    Always,
}

/// The choice on the command line, else of the environment. An invalid value is reported later, when all flags are read.
pub fn choice(argv: &[OsString], env: &dyn Fn(&str) -> Option<OsString>) -> Choice {
    let words: Vec<&str> = argv.iter().skip(1).take_while(|w| *w != "--").filter_map(|w| w.to_str()).collect();
    let joined = words.iter().filter_map(|word| word.strip_prefix("--color="));
    let apart = words.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1]);
    let typed = joined.chain(apart).last().map(str::to_owned);
    let set = || ["HAUL_COLOR", "RCLONE_COLOR"].into_iter().find_map(env).map(|v| v.to_string_lossy().into_owned());
    match typed.or_else(set).unwrap_or_default().to_lowercase().as_str() {
        "always" => Choice::Always,
        "never" => Choice::Never,
        _ if env("NO_COLOR").is_some() || is_dumb(env) => Choice::Never,
        _ => Choice::Auto,
    }
}

/// True for a terminal that understands no control sequences.
fn is_dumb(env: &dyn Fn(&str) -> Option<OsString>) -> bool {
    env("TERM").is_some_and(|term| term == "dumb")
}

impl Choice {
    /// True if colours are on.
    pub fn on(self, is_terminal: bool) -> bool {
        match self {
            Choice::Auto => is_terminal,
            Choice::Never => false,
            Choice::Always => true,
        }
    }

    /// The process's terminal, with these colours. A live display needs one that understands control sequences.
    pub fn screen(self) -> Screen {
        let live = stdout().is_terminal() && !is_dumb(&env);
        let (log, output) = (self.on(stderr().is_terminal()), self.on(stdout().is_terminal()));
        Screen::new(TerminalFeatures { live, log_colours: log, output_colours: output })
    }

    /// Whether clap prints colours.
    pub fn clap(self) -> clap::ColorChoice {
        match self {
            Choice::Auto => clap::ColorChoice::Auto,
            Choice::Never => clap::ColorChoice::Never,
            Choice::Always => clap::ColorChoice::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, vars: &[(&str, &str)]) -> Choice {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        choice(&argv, &|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn the_command_line_counts_before_the_environment() {
        assert_eq!(of("haul ls", &[]), Choice::Auto);
        assert_eq!(of("haul ls", &[("NO_COLOR", "1")]), Choice::Never);
        assert_eq!(of("haul ls", &[("TERM", "dumb")]), Choice::Never);
        assert_eq!(of("haul ls", &[("RCLONE_COLOR", "ALWAYS"), ("NO_COLOR", "1")]), Choice::Always);
        assert_eq!(of("haul --color=never ls", &[("HAUL_COLOR", "always")]), Choice::Never);
        assert_eq!(of("haul ls --color NEVER", &[]), Choice::Never);
        assert_eq!(of("haul ls -- --color=never", &[]), Choice::Auto);
    }

    #[test]
    fn colours_are_where_a_terminal_is_unless_told() {
        assert!(
            Choice::Auto.on(true) && !Choice::Auto.on(false) && Choice::Always.on(false) && !Choice::Never.on(true)
        );
    }
}
