//! Is all of a version at the remote? By name and size, or, when asked to, by reading all of it.

use crate::{
    pull::VerifiedVersion,
    tree::{EntryKind, Tree},
};
use futures::{StreamExt as _, future::LocalBoxFuture, stream};
use haul_cas::{
    address::{Address, Layout},
    remote::those,
};
use haul_core::{Algo, Entry, Error, ErrorKind, Result};
use haul_store::Store;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// Content that is read at once.
const AT_ONCE: usize = 16;

/// A problem with content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It isn't there.
    Missing,
    /// It has another size: this many bytes.
    Size(u64),
    /// It has other bytes.
    Content,
}

/// Result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Content that is right.
    pub right: u64,
    /// Problems, with the address, the path that a person knows it by (the first of several), and how many share it.
    pub wrong: Vec<(Address, String, u64, Defect)>,
}

/// Content that was looked at already: many versions share most of theirs.
#[derive(Debug, Default)]
pub struct CheckedContent {
    right: HashSet<Address>,
    wrong: HashMap<Address, Defect>,
}

/// One content of a version.
struct Content {
    address: Address,
    /// `None` for DVC's list: how large that is stands nowhere; the folder's own was read to get here.
    size: Option<u64>,
    /// The first file that has it, and how many do.
    of: Option<(u32, u64)>,
}

/// Content in order of addresses.
fn content(tree: &Tree, dir: Address) -> Vec<Content> {
    let mut all: Vec<Content> = Vec::new();
    for place in tree.by_content() {
        let (size, md5) = tree.content(place);
        let address = Address::file(Layout::V3, md5);
        match all.last_mut() {
            Some(Content { address: last, of: Some((_, users)), .. }) if *last == address => *users += 1,
            _ => all.push(Content { address, size: Some(size), of: Some((place, 1)) }),
        }
    }
    let at = all.partition_point(|content| content.address < dir);
    all.insert(at, Content { address: dir, size: None, of: None });
    all
}

/// Looks for all content of a version, and its lists; `read` has all of it read and hashed. What `known` has isn't looked at
/// again.
///
/// Errors: the remote can't be asked.
pub fn check<'a>(
    store: &'a Arc<dyn Store>,
    version: &'a VerifiedVersion,
    read: bool,
    known: &'a mut CheckedContent,
) -> LocalBoxFuture<'a, Result<Checked>> {
    Box::pin(async move {
        let content = content(&version.tree, version.record.dir_address());
        let is_new = |address: &Address| !known.right.contains(address) && !known.wrong.contains_key(address);
        let new: Arc<[Address]> = content.iter().map(|content| content.address).filter(is_new).collect();
        let size = |address: &Address| {
            let at = content.binary_search_by(|content| content.address.cmp(address)).ok()?;
            content[at].size
        };
        let mut answers = those(store, new.clone());
        while let Some(entries) = answers.next().await {
            let mut to_read = Vec::new();
            for entry in entries? {
                let Some(address) = Address::of_key(entry.key.as_bytes()) else { continue };
                match size(&address) {
                    // Its store knows that nothing of it, or not all, can be read.
                    _ if entry.damaged => drop(known.wrong.insert(address, Defect::Missing)),
                    Some(size) if size != entry.size => drop(known.wrong.insert(address, Defect::Size(entry.size))),
                    _ if read => to_read.push((address, entry)),
                    _ => drop(known.right.insert(address)),
                }
            }
            let mut reading = stream::iter(to_read)
                .map(|(address, entry)| async move { (address, is_right(store, &address, &entry).await) })
                .buffer_unordered(AT_ONCE);
            while let Some((address, right)) = reading.next().await {
                match right? {
                    true => drop(known.right.insert(address)),
                    false => drop(known.wrong.insert(address, Defect::Content)),
                }
            }
        }
        for address in new.iter().filter(|address| !known.right.contains(address)) {
            known.wrong.entry(*address).or_insert(Defect::Missing);
        }
        Ok(checked(&version.tree, content, known))
    })
}

fn checked(tree: &Tree, content: Vec<Content>, known: &CheckedContent) -> Checked {
    let mut checked = Checked::default();
    // By the place of the first file; DVC's list comes last.
    let mut wrong = BTreeSet::new();
    for (n, content) in content.iter().enumerate() {
        match known.wrong.contains_key(&content.address) {
            true => drop(wrong.insert((content.of.map_or(u32::MAX, |(place, _)| place), n))),
            false => checked.right += 1,
        }
    }
    for (_, n) in wrong {
        let Content { address, of, .. } = content[n];
        let path = of.map_or("(list for DVC)".to_string(), |(place, _)| tree.node(place as usize).shown());
        if let Some(why) = known.wrong.get(&address) {
            checked.wrong.push((address, path, of.map_or(1, |(_, users)| users), why.clone()));
        }
    }
    checked
}

async fn is_right(store: &Arc<dyn Store>, address: &Address, entry: &Entry) -> Result<bool> {
    match haul::hash::read_and_hash(store, entry, &[Algo::Md5]).await {
        Ok(hashes) => Ok(hashes.get(Algo::Md5) == Some(&address.md5[..])),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::new(error.kind(), "read", error.message()).with_key(&entry.key)),
    }
}

/// All content that a version refers to, its lists with it.
pub fn referred(version: &VerifiedVersion) -> impl Iterator<Item = Address> {
    let files = version.tree.nodes().filter_map(|node| match node.what {
        EntryKind::File(_, md5) => Some(Address::file(Layout::V3, md5)),
        _ => None,
    });
    files.chain([version.record.tree_address(), version.record.dir_address()])
}
