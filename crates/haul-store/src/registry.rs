//! The kinds of stores that exist, their options as data, and how to open one. The command line makes flags,
//! prompts and `config providers` from this table; it knows no store by name.

use crate::{Buffers, Store, gate::Gate, lanes::Roads, meters::Meters};
use haul_core::{Error, ErrorKind, Result, links::Munge};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

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
    /// What it does, one or more sentences.
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

/// What a store needs to be opened.
#[derive(Clone)]
pub struct OpenRequest {
    /// Name of the remote, for the locator: `minio`; empty for a plain local path.
    pub remote: String,
    /// The path after the colon, raw bytes.
    pub path: Vec<u8>,
    /// Options by name; unset ones are absent.
    pub options: BTreeMap<String, String>,
    /// What all network stores share.
    pub net: Net,
    /// Counts requests.
    pub meters: Arc<Meters>,
    /// How symlinks are treated by stores that have them.
    pub links: Links,
    /// Symbolic links on the way to a folder on disk are followed only where they belong to root or this user.
    pub own_links: bool,
    /// The stores that options of the kind [`OptionKind::Remote`] name, opened and with the layers around them, by option.
    pub wrapped: BTreeMap<String, Arc<dyn Store>>,
}

/// How symlinks are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRules {
    /// The others are as in [`Links::Keep`], else left out as in [`Links::Skip`].
    pub keep: bool,
    /// Those to directories are followed (`--copy-dirlinks`).
    pub follow_dirs: bool,
    /// Those that may lead out of a tree are followed (`--copy-unsafe-links`); so many directories of it are above the root.
    pub follow_out: Option<usize>,
    /// What is done to the targets of those that are kept.
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

    /// What is done to targets.
    pub fn munge(self) -> Munge {
        if let Links::By(rules) = self { rules.munge } else { Munge::default() }
    }
}

/// Settings that all network stores share.
#[derive(Clone, Debug)]
pub struct Net {
    /// Give up connecting after this long (`--contimeout`).
    pub connect_timeout: Duration,
    /// Give up if no data moves for this long (`--timeout`).
    pub idle_timeout: Duration,
    /// Connections to one host at most. By default as many as a lane of content and a lane of questions together.
    pub connections: usize,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Don't verify certificates (`--no-check-certificate`).
    pub insecure_tls: bool,
    /// Extra certificate authorities, PEM files (`--ca-cert`).
    pub ca_certs: Vec<std::path::PathBuf>,
    /// Requests a second (`--tpslimit`), shared by the whole run.
    pub gate: Arc<Gate>,
    /// How many requests each endpoint takes at once, shared by the whole run.
    pub roads: Arc<Roads>,
    /// What is read from the network goes into these.
    pub buffers: Buffers,
    /// Log requests and answers' headers, without secrets (`--dump headers`).
    pub dump_headers: bool,
}

impl Default for Net {
    fn default() -> Self {
        Net {
            connect_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            connections: 384,
            user_agent: concat!("haul/", env!("CARGO_PKG_VERSION")).into(),
            insecure_tls: false,
            ca_certs: Vec::new(),
            gate: Arc::new(Gate::open()),
            roads: Arc::default(),
            buffers: Buffers::default(),
            dump_headers: false,
        }
    }
}

impl StoreKind {
    /// True for a store that is made on another one. The layers are around that one, and must not be here again.
    pub fn wraps(&self) -> bool {
        self.options.iter().any(|option| option.kind == OptionKind::Remote)
    }
}

/// Every kind of store.
pub fn kinds() -> &'static [StoreKind] {
    &[crate::fs::KIND, crate::s3::KIND, crate::mem::KIND, crate::pack::KIND]
}

/// The kind of this name.
///
/// Errors: `Unsupported`, naming the kinds that exist.
pub fn kind(name: &str) -> Result<&'static StoreKind> {
    kinds().iter().find(|k| k.name == name).ok_or_else(|| {
        let names: Vec<_> = kinds().iter().map(|k| k.name).collect();
        let message = format!("unknown type of store {name:?}; haul has {}", names.join(", "));
        Error::new(ErrorKind::Unsupported, "open", message)
    })
}
