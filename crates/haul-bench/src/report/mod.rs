//! What a bench found, for people and programs: sentences, a table, JSON, a page with plots. Pure.

pub mod json;
pub mod page;
mod plot;
pub mod table;
pub mod words;

use crate::{Choice, Finding, Measured, judge, judge::Lone};

/// What was measured and where: all that the text, the JSON and the page say.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The remote, without secrets, as one line.
    pub remote: String,
    /// The folder that was made in it and removed.
    pub folder: String,
    /// The measurements.
    pub measured: Measured,
    /// What each sweep says.
    pub findings: Vec<Finding>,
    /// What one at a time says.
    pub lone: Vec<Lone>,
    /// Settings that suit the store.
    pub choices: Vec<Choice>,
    /// Processors of this machine.
    pub cores: usize,
    /// When it ended, by the local clock.
    pub at: String,
}

impl Findings {
    /// What the measurements of a machine with so many processors say.
    pub fn new(remote: String, folder: String, measured: Measured, cores: usize, at: String) -> Findings {
        Findings {
            findings: judge::findings(&measured.sweeps, cores),
            lone: judge::lone(&measured.sweeps),
            choices: judge::choices(&measured.sweeps),
            remote,
            folder,
            measured,
            cores,
            at,
        }
    }
}
