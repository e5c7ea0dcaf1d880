//! Files of one folder import one way only: where two need each other, what both need is in a third, below them.
//!
//! A scan of the imports, so it sees names, not methods: an `impl` that is spread over files needs none. A file and the `mod.rs`
//! above it may import each other; what that exports again counts as the file's that has it.

use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

/// Circles that may stay, whole or in part: files, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("cli commands", "commands about the command line itself (help, resume) read the grammar that they are in"),
    ("hashing payload relay store", "the contract's payload hashes and relays itself"),
    ("batch serve", "the simulated Google Cloud Storage answers the requests of a batch as any other"),
    (
        "copy resume upload",
        "S3 changes a key's metadata by copying it, also after an upload; a copy in parts is an upload",
    ),
    (
        "gather root service session",
        "Dropbox commits for one request of an account at a time, so what waits for it is shared as the client is",
    ),
];

type Module = Vec<String>;

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*(?:(pub)(?:\([^)]*\))?\s+)?use\s+([^;]+);").unwrap());
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:crate|super)(?:::\w+)+").unwrap());
static TESTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub\(crate\) )?mod tests").unwrap());
static NO_CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"//[^\n]*|"(?:[^"\\]|\\.)*""#).unwrap());

/// What a crate's files import.
struct Imports {
    /// The paths that each file names, as they stand there.
    paths: BTreeMap<Module, Vec<Vec<String>>>,
    /// What a file exports of others, by the name that it has here.
    exports: BTreeMap<(Module, String), Vec<String>>,
}

impl Imports {
    fn of(files: &[(Module, String)]) -> Imports {
        let mut all = Imports { paths: BTreeMap::new(), exports: BTreeMap::new() };
        for (module, text) in files {
            let code = TESTS.split(text).next().unwrap_or_default();
            let code = NO_CODE.replace_all(code, "\"\"");
            let mut paths = Vec::new();
            for found in USE.captures_iter(&code) {
                for (path, name) in expanded(&found[2], &[]) {
                    if found.get(1).is_some() {
                        all.exports.insert((module.clone(), name), path.clone());
                    }
                    paths.push(path);
                }
            }
            let rest = USE.replace_all(&code, "");
            paths.extend(PATH.find_iter(&rest).map(|path| parts(path.as_str())));
            all.paths.insert(module.clone(), paths);
        }
        all
    }

    /// The file that has what `path` names in `module`; `None` for what is of another crate.
    fn target(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = match path[0].as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => (module.clone(), path),
            name => {
                let child = [&module[..], &[name.to_owned()]].concat();
                (self.paths.contains_key(&child).then(|| module.clone())?, path)
            }
        };
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        for part in rest {
            let child = [&at[..], std::slice::from_ref(part)].concat();
            match self.exports.get(&(at.clone(), part.clone())) {
                _ if self.paths.contains_key(&child) => at = child,
                Some(exported) if depth < 8 => return self.target(&at, exported, depth + 1),
                _ => break,
            }
        }
        Some(at)
    }

    /// For each folder the files (or folders) in it, and which of their neighbours they import.
    fn neighbours(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut all: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, paths) in &self.paths {
            for target in paths.iter().filter_map(|path| self.target(module, path, 0)) {
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    let folder = all.entry(module[..shared].to_vec()).or_default();
                    folder.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        all
    }
}

/// A tree of imports as paths, each with the name that it has here.
fn expanded(tree: &str, above: &[String]) -> Vec<(Vec<String>, String)> {
    let Some(at) = tree.find('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = [above, &parts(path)].concat();
        let Some(last) = path.last().cloned() else { return Vec::new() };
        let name = if alias.trim().is_empty() { last } else { alias.trim().to_owned() };
        return vec![(path, name)];
    };
    let above = [above, &parts(&tree[..at])].concat();
    let inner = &tree[at + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start, mut all) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.extend(expanded(&inner[start..at], &above));
                start = at + 1;
            }
            _ => {}
        }
    }
    all
}

fn parts(path: &str) -> Vec<String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Those that reach each other.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = ahead.pop() {
            ahead.extend(edges.get(&next).into_iter().flatten().filter(|to| seen.insert((*to).clone())).cloned());
        }
        seen
    };
    let reach: BTreeMap<_, _> = edges.keys().map(|from| (from.clone(), reached(from))).collect();
    let circle = |from: &String| -> BTreeSet<String> {
        let back = |to: &&String| reach.get(*to).is_some_and(|reached| reached.contains(from));
        reach[from].iter().filter(back).cloned().collect()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn files(dir: &Path, module: &Module, out: &mut Vec<(Module, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let inner = [&module[..], std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            files(&path, &inner, out);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "tests" {
            let module = if matches!(&name[..], "mod" | "lib" | "main") { module.clone() } else { inner };
            out.push((module, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn files_of_a_folder_import_one_way() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let allowed: Vec<BTreeSet<String>> =
        ALLOWED.iter().map(|(files, _)| files.split(' ').map(str::to_owned).collect()).collect();
    let (mut new, mut there) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(crates).unwrap() {
        let (path, mut all) = (entry.unwrap().path(), Vec::new());
        if !path.join("src").is_dir() {
            continue;
        }
        files(&path.join("src"), &Vec::new(), &mut all);
        for (folder, edges) in Imports::of(&all).neighbours() {
            for circle in circles(&edges) {
                let known: Vec<usize> =
                    (0..allowed.len()).filter(|number| circle.is_subset(&allowed[*number])).collect();
                if known.is_empty() {
                    new.push(format!("{} {}: {circle:?}", path.display(), folder.join("/")));
                }
                there.extend(known);
            }
        }
    }
    assert!(new.is_empty(), "these import each other, move what they share into a file below them: {new:#?}");
    let gone: Vec<_> = (0..allowed.len()).filter(|number| !there.contains(number)).map(|at| ALLOWED[at]).collect();
    assert!(gone.is_empty(), "these don't import each other any more, take them off the list: {gone:#?}");
}

#[test]
fn the_scan_sees_circles_through_folders_exports_and_paths_in_code() {
    let file = |name: &str, text: &str| -> (Module, String) {
        (if name.is_empty() { Vec::new() } else { parts(name) }, text.to_owned())
    };
    let circles_of = |all: &[(Module, String)]| -> Vec<String> {
        let found = Imports::of(all).neighbours();
        let all = found.values().flat_map(circles);
        all.map(|circle| circle.into_iter().collect::<Vec<_>>().join(" ")).collect()
    };
    let top = file("", "mod a;\nmod b;\nmod c;\npub use a::{Thing, x as y};");
    let a = file("a", "use crate::b::{self, deep::{Inner, Other}};\n// use crate::c;");
    let b = file("b", "mod deep;");
    let quiet = file("b::deep", "use std::fmt;\nuse super::super::c::Last;");
    let c = file("c", "const TEXT: &str = \"crate::a\";");
    assert!(circles_of(&[top.clone(), a.clone(), b.clone(), quiet, c.clone()]).is_empty());
    let exported = file("b::deep", "use crate::{c::Last, y};");
    assert_eq!(circles_of(&[top.clone(), a.clone(), b.clone(), exported, c.clone()]), ["a b"]);
    let named = file("c", "fn f() -> u8 { crate::a::f() }");
    let deep = file("b::deep", "use super::super::c::Last;");
    assert_eq!(circles_of(&[top.clone(), a.clone(), b.clone(), deep, named]), ["a b c"]);
    let tested = file("c", "\n#[cfg(test)]\nmod tests { use crate::a; }");
    let deep = file("b::deep", "use super::super::c::Last;");
    assert!(circles_of(&[top, a, b, deep, tested]).is_empty());
}
