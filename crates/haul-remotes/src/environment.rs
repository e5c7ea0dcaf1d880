//! The environment of a process, as its front end saw it: nothing in this crate reads it.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

/// Variables and the home folder. Not to be shown: variables hold secrets.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    home: Option<PathBuf>,
}

impl Environment {
    /// These variables; `HOME` names the home folder. Empty ones count as unset.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let variables: BTreeMap<_, _> = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let home = variables.get(&OsString::from("HOME")).map(PathBuf::from);
        Environment { variables, home }
    }

    /// This environment with another home folder.
    pub fn with_home(self, home: Option<PathBuf>) -> Environment {
        Environment { home, ..self }
    }

    /// A variable that is set.
    pub fn get(&self, name: &str) -> Option<OsString> {
        self.variables.get(std::ffi::OsStr::new(name)).cloned()
    }

    /// The user's home folder.
    pub fn home(&self) -> Option<&std::path::Path> {
        self.home.as_deref()
    }

    /// The variables whose names are text, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().filter_map(|name| name.to_str())
    }
}
