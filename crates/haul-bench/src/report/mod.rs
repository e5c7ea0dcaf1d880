//! Results of a bench, for people and programs: sentences, a table, JSON, a page with plots. Pure.

pub mod json;
pub mod page;
mod plot;
pub mod sentences;
pub mod table;

use crate::{BenchResult, BestSettings, SweepResult, analysis, analysis::SingleConnection};

/// Measurements and their setting: all content of the text, the JSON and the page.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The remote, or the folder that was copied from, without secrets, as one line.
    pub remote: String,
    /// The other folder, where it was two that were measured.
    pub across: Option<BetweenFolders>,
    /// The folder that was made in it and removed.
    pub folder: String,
    /// The measurements.
    pub measured: BenchResult,
    /// Result of each sweep.
    pub findings: Vec<SweepResult>,
    /// Results of one at a time.
    pub lone: Vec<SingleConnection>,
    /// Settings that suit the store.
    pub choices: Vec<BestSettings>,
    /// Processors of this machine.
    pub cores: usize,
    /// When it ended, by the local clock.
    pub at: String,
}

/// The other folder of two, and what haul does between disks on such a machine.
#[derive(Clone, Debug)]
pub struct BetweenFolders {
    /// The folder that was copied to.
    pub to: String,
    /// Copies at once that haul makes by itself, and each rank of haul-mpi that has a node to itself.
    pub alone: usize,
}

impl Findings {
    /// These findings for two directories. As many copies at once as haul makes by itself needn't be set, and it makes no more.
    pub fn between(self, across: BetweenFolders) -> Findings {
        let needed =
            |choice: BestSettings| BestSettings { transfers: choice.transfers.filter(|n| *n < across.alone), ..choice };
        Findings { choices: self.choices.iter().copied().map(needed).collect(), across: Some(across), ..self }
    }

    /// Findings from the measurements of a machine with `cores` processors.
    pub fn new(remote: String, folder: String, measured: BenchResult, cores: usize, at: String) -> Findings {
        Findings {
            across: None,
            findings: analysis::findings(&measured.sweeps, cores),
            lone: analysis::lone(&measured.sweeps),
            choices: analysis::choices(&measured.sweeps),
            remote,
            folder,
            measured,
            cores,
            at,
        }
    }
}
