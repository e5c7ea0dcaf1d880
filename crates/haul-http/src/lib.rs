//! Files that a web server shows in index pages (`http`), read-only: those of Apache, nginx, lighttpd, Caddy, Python's
//! `http.server`, `rclone serve http`, and others that make pages like theirs.
//!
//! A page proves what a directory holds only if it is one of these: what else a server may send for a directory, a form to log in or
//! a home page, is an error and never an empty directory.

pub mod address;
mod index;
mod list;
mod read;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Caps, CopyBatch, Lanes, ListRequest, OpenRequest, OptionKind, OptionSpec, Read, Store, StoreKind, StoredFacts,
    Upload, Watch, WriteSpec, tree, web,
};
use std::{ops::Range, sync::Arc};
use url::Url;

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "http",
    description: "Files on a web server, by its index pages, read-only",
    options: OPTIONS,
    open,
};

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "url",
        help: "Address of the directory, such as https://example.com/data; with user and password as https://user:pass@host/.",
        advanced: false,
        secret: true,
        ..BASE
    },
    OptionSpec {
        name: "headers",
        help: "Headers for each request, alternating names and values: \"Cookie\",\"name=value\".",
        secret: true,
        ..BASE
    },
    OptionSpec {
        name: "no_slash",
        help: "The server's pages show directories without a trailing slash: look up the type of each name.",
        default: "false",
        kind: OptionKind::Bool,
        ..BASE
    },
    OptionSpec {
        name: "no_head",
        help: "Don't request each file's size and time: use those of the page, where they are exact.",
        default: "false",
        kind: OptionKind::Bool,
        ..BASE
    },
];

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let set = |name: &str| request.options.get(name).is_some_and(|value| value == "true");
    let headers = web::headers(request.options.get("headers").map(String::as_str).unwrap_or_default())?;
    let web = web::Web::open(&request, KIND.name, headers)?;
    let caps = web::caps();
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    let (no_slash, no_head) = (set("no_slash"), set("no_head"));
    Ok(Arc::new(HttpStore { site: Arc::new(Site { web, no_slash, no_head, only: None }), caps, locator }))
}

/// State that requests need.
#[derive(Debug)]
struct Site {
    web: web::Web,
    /// A name without a trailing `/` may be a directory.
    no_slash: bool,
    /// Files aren't asked about one by one.
    no_head: bool,
    /// The URL is a file: there is nothing else.
    only: Option<Url>,
}

impl Site {
    /// Where `key` is.
    ///
    /// Errors: `Invalid` for a name that such a server can't have.
    fn url(&self, key: &Key) -> Result<Url> {
        self.only.clone().map_or_else(|| self.web.url(key), Ok)
    }
}

#[derive(Debug)]
struct HttpStore {
    site: Arc<Site>,
    caps: Caps,
    locator: String,
}

fn read_only<T>(op: &'static str) -> Result<T> {
    Err(Error::new(
        ErrorKind::Unsupported,
        op,
        "a web server's files can only be read: use webdav, if the server has it",
    ))
}

impl Store for HttpStore {
    fn locator(&self) -> &str {
        &self.locator
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        tree::list(Arc::new(list::Pages(self.site.clone())), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move { read::stat(&self.site, &key).await }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move { read::read(&self.site, &key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, key: &Key, _: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let refused = read_only("write").map_err(|e| e.with_key(key));
        async { refused }.boxed()
    }

    fn make_dir(&self, _: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        async { read_only("mkdir") }.boxed()
    }

    fn copy(&self, batch: CopyBatch, _: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move { batch.items.iter().map(|_| read_only("copy")).collect() }.boxed()
    }

    fn set_meta(&self, _: &Key, _: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        async { read_only("set_meta") }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move { keys.iter().map(|(key, _)| read_only("delete").map_err(|e| e.with_key(key))).collect() }.boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        Some(&self.site.web.lanes)
    }
}
