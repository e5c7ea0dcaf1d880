//! Paths in a repository: text with `/` between parts, below its root.

/// `folder/name`, without the slash in the root.
pub fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.into() } else { format!("{folder}/{name}") }
}

/// The folder that holds a path.
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A relative path without `.`, `..` and empty parts, where that can be said.
pub fn normal_path(path: &str) -> String {
    tracked_path("", None, path)
}

/// A path written in a file of `folder`, below the root; as it is when it leads out of it.
pub fn tracked_path(folder: &str, wdir: Option<&str>, path: &str) -> String {
    if path.starts_with('/') {
        return path.into();
    }
    let mut parts: Vec<&str> = Vec::new();
    let all = folder.split('/').chain(wdir.unwrap_or_default().split('/')).chain(path.split('/'));
    for part in all.filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." if parts.pop().is_none() => return path.into(),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
