//! Files and folders: names fold case, and only the last part of a path is told as it was written.

use super::{Refusal, content_hash};
use crate::spoils::Spoils;
use bytes::Bytes;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

const REFUSED: [&str; 6] = ["desktop.ini", "thumbs.db", ".ds_store", "icon\r", ".dropbox", ".dropbox.attr"];

#[derive(Debug, Default)]
pub struct Tree {
    /// By path in lower case.
    nodes: BTreeMap<String, Node>,
    /// Every version that there was.
    versions: BTreeMap<String, (Value, Bytes)>,
    cursors: BTreeMap<String, (Vec<Value>, usize)>,
    count: u64,
    pub spoils: Spoils,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    id: String,
    file: Option<File>,
}

#[derive(Clone, Debug)]
struct File {
    bytes: Bytes,
    rev: String,
    hash: String,
    client_modified: String,
    server_modified: String,
}

fn folded(path: &str) -> String {
    path.to_lowercase()
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Errors: what can't be a path.
fn check(path: &str) -> Result<(), Refusal> {
    let Some(rest) = path.strip_prefix('/') else { return Err("malformed") };
    for part in rest.split('/') {
        if part.is_empty() || part.chars().count() > 255 || part.ends_with(' ') || part.contains(['\\', '\0']) {
            return Err("path/malformed_path");
        }
        if matches!(part, "." | "..") || REFUSED.contains(&&*part.to_lowercase()) {
            return Err("path/disallowed_name");
        }
    }
    Ok(())
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Tree {
    fn value(path: &str, node: &Node) -> Value {
        let (parent, _) = split(path);
        let mut value = json!({
            "name": node.name, "id": node.id, "path_lower": path, "path_display": format!("{parent}/{}", node.name),
        });
        value[".tag"] = if node.file.is_some() { "file" } else { "folder" }.into();
        if let Some(file) = &node.file {
            value["rev"] = file.rev.as_str().into();
            value["size"] = file.bytes.len().into();
            value["content_hash"] = file.hash.as_str().into();
            value["client_modified"] = file.client_modified.as_str().into();
            value["server_modified"] = file.server_modified.as_str().into();
            value["is_downloadable"] = true.into();
        }
        value
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Facts by path, `id:` or `rev:`; `None` where there is nothing.
    pub fn facts(&self, path: &str) -> Option<Result<Value, Refusal>> {
        if let Some(rev) = path.strip_prefix("rev:") {
            return self.versions.get(rev).map(|(facts, _)| Ok(facts.clone()));
        }
        if path.starts_with("id:") {
            return self.nodes.iter().find(|(_, node)| node.id == path).map(|(path, node)| Ok(Tree::value(path, node)));
        }
        if !path.starts_with('/') || path.ends_with('/') {
            return Some(Err("malformed"));
        }
        let path = folded(path);
        self.nodes.get(&path).map(|node| Ok(Tree::value(&path, node)))
    }

    pub fn content(&self, path: &str) -> Result<(Value, Bytes), Refusal> {
        let facts = self.facts(path).ok_or("path/not_found")??;
        let rev = facts["rev"].as_str().ok_or("path/not_file")?;
        let (_, bytes) = self.versions.get(rev).ok_or("path/not_found")?;
        Ok((facts, bytes.clone()))
    }

    /// The folders above a path.
    fn parents(&mut self, path: &str) -> Result<(), Refusal> {
        for (at, _) in path.match_indices('/').skip(1) {
            let above = &path[..at];
            match self.nodes.get(&folded(above)) {
                Some(node) if node.file.is_some() => return Err("path/conflict/file_ancestor"),
                Some(_) => {}
                None => {
                    let (name, id) = (split(above).1.to_owned(), format!("id:{:022}", self.next()));
                    self.nodes.insert(folded(above), Node { name, id, file: None });
                }
            }
        }
        Ok(())
    }

    /// Gives content a name, as a `CommitInfo` says.
    pub fn commit(&mut self, commit: &Value, bytes: Bytes) -> Result<Value, Refusal> {
        let path = commit["path"].as_str().unwrap_or_default().to_owned();
        check(&path)?;
        let mode = commit["mode"][".tag"].as_str().or(commit["mode"].as_str()).unwrap_or("add");
        let strict = commit["strict_conflict"].as_bool() == Some(true);
        let key = folded(&path);
        let hash = content_hash(&bytes);
        let there = self.nodes.get(&key).cloned();
        if let Some(node) = &there {
            let Some(file) = &node.file else { return Err("path/conflict/folder") };
            let same = file.hash == hash && !strict;
            match mode {
                "add" if same => return Ok(Tree::value(&key, node)),
                "add" => return Err("path/conflict/file"),
                "update" if commit["mode"]["update"].as_str() != Some(&file.rev) => {
                    if same {
                        return Ok(Tree::value(&key, node));
                    }
                    return Err("path/conflict/file");
                }
                _ => {}
            }
        } else if mode == "update" && strict {
            return Err("path/conflict/file");
        }
        self.parents(&path)?;
        let bytes = self.spoils.stored(bytes);
        let hash = content_hash(&bytes);
        let number = self.next();
        let client_modified = commit["client_modified"].as_str().map_or_else(now, str::to_owned);
        let rev = format!("{number:015x}");
        let file = File { bytes: bytes.clone(), rev: rev.clone(), hash, client_modified, server_modified: now() };
        // A file that is replaced keeps its name's case.
        let (name, id) = match there {
            Some(node) => (node.name, node.id),
            None => (split(&path).1.to_owned(), format!("id:{number:022}")),
        };
        let node = Node { name, id, file: Some(file) };
        let facts = Tree::value(&key, &node);
        self.nodes.insert(key, node);
        self.versions.insert(rev, (facts.clone(), bytes));
        Ok(facts)
    }

    pub fn create_folder(&mut self, path: &str) -> Result<Value, Refusal> {
        check(path)?;
        match self.nodes.get(&folded(path)) {
            Some(node) if node.file.is_some() => return Err("path/conflict/file"),
            Some(_) => return Err("path/conflict/folder"),
            None => {}
        }
        self.parents(&format!("{path}/"))?;
        self.facts(path).ok_or("other")?
    }

    fn below(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        self.nodes
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(k, _)| k.clone())
            .collect()
    }

    pub fn delete(&mut self, path: &str, parent_rev: Option<&str>) -> Result<Value, Refusal> {
        let facts = self.facts(path).ok_or("path_lookup/not_found")??;
        if parent_rev.is_some() && parent_rev != facts["rev"].as_str() {
            return Err("path_write/conflict/file");
        }
        let key = facts["path_lower"].as_str().unwrap_or_default().to_owned();
        for below in self.below(&key) {
            self.nodes.remove(&below);
        }
        self.nodes.remove(&key);
        Ok(facts)
    }

    pub fn relocate(&mut self, from: &str, to: &str, moves: bool) -> Result<Value, Refusal> {
        let source = match self.facts(from) {
            None => return Err("from_lookup/not_found"),
            Some(facts) => facts?["path_lower"].as_str().unwrap_or_default().to_owned(),
        };
        check(to).map_err(|refusal| if refusal == "malformed" { refusal } else { "to/malformed_path" })?;
        let target = folded(to);
        if self.nodes.contains_key(&target) && !(moves && source == target) {
            return Err(if self.nodes[&target].file.is_some() { "to/conflict/file" } else { "to/conflict/folder" });
        }
        self.parents(to)?;
        let mut all = self.below(&source);
        all.insert(0, source.clone());
        for old in all {
            let Some(mut node) = self.nodes.get(&old).cloned() else { continue };
            let new = format!("{target}{}", &old[source.len()..]);
            if moves {
                self.nodes.remove(&old);
            } else {
                node.id = format!("id:{:022}", self.next());
            }
            if old == source {
                node.name = split(to).1.to_owned();
            }
            let number = self.next();
            if let Some(file) = &mut node.file {
                if !moves {
                    file.bytes = self.spoils.stored(file.bytes.clone());
                    file.hash = content_hash(&file.bytes);
                }
                file.rev = format!("{number:015x}");
                self.versions.insert(file.rev.clone(), (Value::Null, file.bytes.clone()));
            }
            let facts = Tree::value(&new, &node);
            if let Some(file) = &node.file {
                self.versions.insert(file.rev.clone(), (facts, file.bytes.clone()));
            }
            self.nodes.insert(new, node);
        }
        self.facts(to).ok_or("other")?
    }

    /// In no order that anybody could count on.
    pub fn list(&mut self, path: &str, recursive: bool, limit: usize) -> Result<Value, Refusal> {
        if !path.is_empty() {
            let facts = self.facts(path).ok_or("path/not_found")??;
            if facts[".tag"] != "folder" {
                return Err("path/not_folder");
            }
        }
        let path = folded(path);
        let mut found: Vec<Value> = Vec::new();
        // A recursive listing tells the folder itself too.
        if recursive && let Some(node) = self.nodes.get(&path) {
            found.push(Tree::value(&path, node));
        }
        let prefix = format!("{path}/");
        let below = self.nodes.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let below = below.filter(|(key, _)| recursive || !key[prefix.len()..].contains('/'));
        found.extend(below.map(|(key, node)| Tree::value(key, node)));
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        found.sort_by_cached_key(|value| hash.hash_one(value["path_lower"].as_str()));
        let cursor = format!("cursor-{}", self.next());
        self.cursors.insert(cursor.clone(), (found, limit.max(1)));
        self.go_on(&cursor)
    }

    pub fn go_on(&mut self, cursor: &str) -> Result<Value, Refusal> {
        let (mut left, limit) = self.cursors.get(cursor).cloned().ok_or("reset")?;
        let rest = left.split_off(left.len().min(limit));
        let (more, next) = (!rest.is_empty(), format!("cursor-{}", self.next()));
        self.cursors.insert(next.clone(), (rest, limit));
        Ok(json!({"entries": left, "cursor": next, "has_more": more}))
    }

    pub fn used(&self) -> usize {
        self.nodes.values().filter_map(|node| Some(node.file.as_ref()?.bytes.len())).sum()
    }

    pub fn all(&self) -> BTreeMap<String, Option<Bytes>> {
        let names: BTreeSet<&String> = self.nodes.keys().collect();
        let display = |path: &str| {
            let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
            ends.map(|end| format!("/{}", self.nodes[&path[..end]].name)).collect::<String>()
        };
        names.into_iter().map(|path| (display(path), self.nodes[path].file.as_ref().map(|f| f.bytes.clone()))).collect()
    }
}
