//! Lists a directory: its index page, then a request for each file whose facts the page doesn't have.

use crate::{
    Site,
    index::{self, Link},
    read,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_net::at;
use haul_store::{
    Direction,
    tree::{Folders, FoundName, WantedKeys},
    web::{Call, Facts},
};
use http::{Method, header};
use std::{collections::BTreeMap, sync::Arc};

/// Questions of one directory at once; the lane bounds those of all.
const QUESTIONS: usize = 32;

/// The preferred format is exact, and shorter.
const ACCEPT: &str = "application/json, text/html;q=0.9, */*;q=0.1";

/// The pages of a site, one a directory.
pub struct Pages(pub Arc<Site>);

impl Folders for Pages {
    fn folder(&self, dir: Key, wanted: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let site = self.0.clone();
        async move { folder(&site, &dir, &wanted).await }.boxed()
    }
}

async fn folder(site: &Arc<Site>, dir: &Key, wanted: &WantedKeys) -> Result<Vec<FoundName>> {
    let links = page(site, dir).await?;
    let links = links.into_iter().map(|(name, link)| (Key::new([dir.as_bytes(), &name].concat()), link));
    let wanted = links.filter(|(key, link)| match link.is_dir {
        true => wanted(key.with_suffix("/").as_bytes()),
        false => wanted(key.as_bytes()) || site.no_slash,
    });
    let found = stream::iter(wanted).map(|(key, link)| {
        let site = site.clone();
        async move { look(&site, key, &link).await }
    });
    Ok(found.buffer_unordered(QUESTIONS).collect().await)
}

async fn look(site: &Site, key: Key, link: &Link) -> FoundName {
    if link.is_dir {
        return FoundName::Entry(Entry::dir(key.with_suffix("/")));
    }
    let exact = link.size.filter(|_| link.modified.is_some() || site.no_head);
    match exact.filter(|_| !site.no_slash) {
        Some(size) => FoundName::Entry(Facts { size, modified: link.modified, etag: None }.entry(key)),
        None => match read::ask(site, &key).await {
            Ok(entry) => FoundName::Entry(entry),
            Err(error) => FoundName::Failed(key, error),
        },
    }
}

async fn page(site: &Site, dir: &Key) -> Result<BTreeMap<Vec<u8>, Link>> {
    let url = site.web.url(dir)?;
    let call = Call::new("GetIndex", Direction::Meta, Method::GET, url.clone()).header(header::ACCEPT, ACCEPT);
    let answer = site.web.follow(call).await.map_err(at("list", dir))?;
    let kind = answer.reply.header("content-type").unwrap_or_default().to_owned();
    let bytes = answer.reply.bytes().await.map_err(at("list", dir))?;
    index::read(&answer.url, &kind, &bytes).ok_or_else(|| {
        let why = format!("{url} is no index page that haul knows, so it proves nothing of what is in the directory");
        Error::new(ErrorKind::Unsupported, "list", why).with_key(dir)
    })
}
