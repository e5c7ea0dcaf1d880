//! Description of a kind of store: its options as data, and how to open one. `haul-remotes` lists the kinds that exist.

use crate::{Meters, Net, Store};
use futures::future::BoxFuture;
use haul_core::{Result, links::Munge};
use serde::{Deserialize, Serialize};
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// One kind of store.
pub struct StoreKind {
    /// The `type` in a config section, as rclone names it: `s3`, `local`, `memory`.
    pub name: &'static str,
    /// In one line, for menus.
    pub description: &'static str,
    /// Every option, in the order in which an interactive set-up asks.
    pub options: &'static [OptionSpec],
    /// Opens a store of this kind.
    pub open: fn(OpenRequest) -> Result<Arc<dyn Store>>,
}

/// One option of a store kind; as a flag it is `--KIND-NAME` with `-` for `_`.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name in a config section: `access_key_id`.
    pub name: &'static str,
    /// Its function, in one or more sentences.
    pub help: &'static str,
    /// Value when unset, as it would be typed.
    pub default: &'static str,
    /// How a value is read.
    pub kind: OptionKind,
    /// Kept out of the first round of questions.
    pub advanced: bool,
    /// Never shown; `Obscured` values are stored as rclone obscures them.
    pub secret: bool,
    /// Suggested values with a word on each.
    pub examples: &'static [(&'static str, &'static str)],
}

/// How an option's value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A size such as `5Mi`.
    Size,
    /// A duration such as `10s`.
    Duration,
    /// A password, obscured in the file.
    Obscured,
    /// Another remote with a path, which the store is made on: it comes opened, in [`OpenRequest::wrapped`].
    Remote,
}

/// The options of two lists, one behind the other, for kinds that have another's options too.
pub const fn joined<const ALL: usize>(first: &[OptionSpec], then: &[OptionSpec]) -> [OptionSpec; ALL] {
    assert!(ALL == first.len() + then.len(), "one place for each");
    let mut all = [if first.is_empty() { then[0] } else { first[0] }; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < first.len() { first[at] } else { then[at - first.len()] };
        at += 1;
    }
    all
}

/// Input for opening a store. The default is for a store on its own, outside of any session.
#[derive(Clone, Default)]
pub struct OpenRequest {
    /// Name of the remote, for the locator: `minio`; empty for a plain local path.
    pub remote: String,
    /// The path after the colon, raw bytes.
    pub path: Vec<u8>,
    /// Options by name; unset ones are absent.
    pub options: BTreeMap<String, String>,
    /// Network settings that all network stores share.
    pub net: Net,
    /// Counts requests.
    pub meters: Arc<Meters>,
    /// How symlinks are treated by stores that have them.
    pub links: Links,
    /// Symbolic links on the way to a folder on disk are followed only where they belong to root or this user.
    pub own_links: bool,
    /// The stores that options of the kind [`OptionKind::Remote`] name, opened and with the layers around them, by option.
    pub wrapped: BTreeMap<String, Arc<dyn Store>>,
    /// Where options are kept that change by themselves, such as tokens; `None` for what no config file describes.
    pub section: Option<Arc<dyn Section>>,
    /// State that the stores of a session share.
    pub shared: SharedObjects,
    /// Asks a person; `None` where there is nobody to ask.
    pub consent: Option<Consent>,
}

/// Asks a person to confirm an action that nobody requested. A front end supplies it, stores only ask.
#[derive(Clone)]
pub struct Consent {
    ask: Arc<Ask>,
    silent: Arc<AtomicBool>,
}

/// Gives the answer to a question.
type Ask = dyn Fn(String) -> BoxFuture<'static, Result<bool>> + Send + Sync;

impl Consent {
    /// `ask` gets a question in one line, and returns false where no person can be asked or the answer is neither. It fails where the
    /// person stops the run instead.
    pub fn new(ask: impl Fn(String) -> BoxFuture<'static, Result<bool>> + Send + Sync + 'static) -> Consent {
        Consent { ask: Arc::new(ask), silent: Arc::default() }
    }

    /// Disables questions, for this one and all its clones.
    pub fn silence(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Asks a person; true when the answer is yes.
    ///
    /// Errors: the person stopped the run.
    pub async fn ask(&self, question: String) -> Result<bool> {
        if self.silent.load(Ordering::Relaxed) {
            return Ok(false);
        }
        (self.ask)(question).await
    }
}

/// Objects that the stores of a session share, by name: a login, for example; and what they have told already.
#[derive(Clone, Default)]
pub struct SharedObjects {
    objects: Arc<Mutex<BTreeMap<String, Arc<dyn Any + Send + Sync>>>>,
    told: Arc<Mutex<BTreeSet<String>>>,
}

impl SharedObjects {
    /// For another session of the same run: it has objects of its own, and tells nothing twice.
    pub fn apart(&self) -> SharedObjects {
        SharedObjects { told: self.told.clone(), ..SharedObjects::default() }
    }

    /// True the first time that a run asks whether to tell this, by any name for it.
    pub fn tells(&self, name: &str) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
    }

    /// The object of this name and type; built by `make` if there is none yet.
    ///
    /// Errors: `make` failed.
    pub fn get<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut things = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = things.get(name).and_then(|thing| thing.clone().downcast().ok());
        match known {
            Some(thing) => Ok(thing),
            None => {
                let thing = Arc::new(make()?);
                things.insert(name.to_owned(), thing.clone());
                Ok(thing)
            }
        }
    }
}

/// The section of a config file that describes a remote.
pub trait Section: fmt::Debug + Send + Sync {
    /// Reads it anew, and blocks others who would change it until the answer is dropped.
    ///
    /// Errors: the file can't be read, or stays locked by somebody else.
    fn lock(&self) -> BoxFuture<'_, Result<Box<dyn Locked>>>;
}

/// A section that is locked against other writers.
pub trait Locked: Send + Sync {
    /// An option's value, as it stands in the file.
    fn get(&self, option: &str) -> Option<String>;

    /// Writes one option, and leaves all else in the file as it is.
    ///
    /// Errors: the file can't be written; it is as before.
    fn set(&mut self, option: &str, value: &str) -> Result<()>;

    /// Has rclone renew the token in it, and reads it anew.
    ///
    /// Errors: why it didn't.
    fn by_rclone(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// How symlinks are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// Leave them out and say so.
    #[default]
    Skip,
    /// Copy what they point to (`--copy-links`).
    Follow,
    /// As symlinks (`--links`).
    Keep,
    /// Each by what it leads to, and how.
    By(LinkRules),
}

/// How symlinks are treated that aren't all treated alike: those that a rule follows are what they lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkRules {
    /// The others are as in [`Links::Keep`], else left out as in [`Links::Skip`].
    pub keep: bool,
    /// Those to directories are followed (`--copy-dirlinks`).
    pub follow_dirs: bool,
    /// Symlinks that may lead out of a tree are followed (`--copy-unsafe-links`); the number of the tree's directories above the root.
    pub follow_out: Option<usize>,
    /// Change made to the targets of kept symlinks.
    pub munge: Munge,
    /// Those that are left out can be read all the same, by the key that they would have.
    pub tell: bool,
}

impl Links {
    /// Links may be symlinks of their own, see [`haul_core::Kind::Symlink`].
    pub fn keeps(self) -> bool {
        matches!(self, Links::Keep | Links::By(LinkRules { keep: true, .. }))
    }

    /// Links can be read as such.
    pub fn tells(self) -> bool {
        self.keeps() || matches!(self, Links::By(LinkRules { tell: true, .. }))
    }

    /// Some links to directories are directories.
    pub fn follows_dirs(self) -> bool {
        self.follows_files() || matches!(self, Links::By(LinkRules { follow_dirs: true, .. }))
    }

    /// Some links to files are these files.
    pub fn follows_files(self) -> bool {
        matches!(self, Links::Follow | Links::By(LinkRules { follow_out: Some(_), .. }))
    }

    /// Change made to symlink targets.
    pub fn munge(self) -> Munge {
        if let Links::By(rules) = self { rules.munge } else { Munge::default() }
    }
}

impl StoreKind {
    /// True for a store built on another store. The layers are around that other one, and must not be repeated here.
    pub fn wraps(&self) -> bool {
        self.options.iter().any(|option| option.kind == OptionKind::Remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_run_share_what_was_told_and_no_objects() {
        let first = SharedObjects::default();
        let second = first.apart();
        assert_eq!(
            (first.tells("a"), second.tells("a"), second.tells("b"), first.tells("b")),
            (true, false, true, false)
        );
        let number = |shared: &SharedObjects, number: u8| *shared.get("n", || Ok(number)).unwrap();
        assert_eq!((number(&first, 1), number(&first, 2), number(&second, 3)), (1, 1, 3));
    }
}
