//! The crates import one way only, and no crate does what another is for. The cargo graph keeps most of this; what it
//! can't see (a dependency added in a hurry, a store importing another) is kept here.

use std::{fs, path::Path};

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The names of all crates.
fn crates() -> Vec<String> {
    let all = fs::read_dir(workspace().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.join("Cargo.toml").exists()).collect();
    all.sort();
    all.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// All crates but these.
fn all_but(names: &[&str]) -> Vec<String> {
    crates().into_iter().filter(|name| !names.contains(&&**name)).collect()
}

/// The `[dependencies]` of a crate, not its dev-dependencies.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(workspace().join("crates").join(name).join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    section.lines().filter_map(|l| l.split(['.', ' ', '=']).next()).map(str::to_owned).collect()
}

#[test]
fn crates_import_one_way() {
    let ours = |name: &str| -> Vec<String> {
        dependencies(name).into_iter().filter(|d| d == "haul" || d.starts_with("haul-")).collect()
    };
    assert_eq!(ours("haul-core"), Vec::<String>::new());
    assert_eq!(ours("haul-net"), ["haul-core"]);
    assert_eq!(ours("haul-store"), ["haul-core", "haul-net"]);
    assert_eq!(ours("haul-fs"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-mem"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-pack"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-s3"), ["haul-core", "haul-net", "haul-store"]);
    assert_eq!(ours("haul-http"), ["haul-core", "haul-net", "haul-store"]);
    assert_eq!(ours("haul-webdav"), ["haul-core", "haul-net", "haul-store"]);
    assert_eq!(ours("haul-ssh"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-sftp"), ["haul-core", "haul-ssh", "haul-store"]);
    assert_eq!(ours("haul-crypt"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-oauth"), ["haul-core", "haul-net", "haul-store"]);
    assert_eq!(ours("haul-box"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(ours("haul-drive"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(ours("haul-dropbox"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(ours("haul-far"), ["haul-core", "haul-ssh", "haul-store"]);
    assert_eq!(ours("haul-gcs"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(ours("haul-azure"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(ours("haul-onedrive"), ["haul-core", "haul-net", "haul-oauth", "haul-store"]);
    assert_eq!(
        ours("haul-remotes"),
        [
            "haul-azure",
            "haul-box",
            "haul-core",
            "haul-crypt",
            "haul-drive",
            "haul-dropbox",
            "haul-far",
            "haul-fs",
            "haul-gcs",
            "haul-http",
            "haul-mem",
            "haul-oauth",
            "haul-onedrive",
            "haul-pack",
            "haul-s3",
            "haul-sftp",
            "haul-ssh",
            "haul-store",
            "haul-webdav"
        ]
    );
    assert_eq!(ours("haul"), ["haul-core", "haul-store"]);
    assert_eq!(ours("haul-bench"), ["haul", "haul-core", "haul-store"]);
    assert_eq!(ours("haul-cas"), ["haul", "haul-core", "haul-store"]);
    assert_eq!(ours("haul-dvc"), ["haul", "haul-cas", "haul-core", "haul-store"]);
    assert_eq!(ours("haul-fleet"), ["haul", "haul-core", "haul-store"]);
    assert_eq!(ours("haul-snapshot"), ["haul", "haul-cas", "haul-core", "haul-store"]);
    assert_eq!(ours("haul-terminal"), ["haul-core"]);
    assert_eq!(ours("haul-rsync"), ["haul", "haul-core", "haul-fs", "haul-remotes", "haul-store", "haul-terminal"]);
    assert_eq!(ours("haul-dcp"), ["haul-core", "haul-rsync", "haul-terminal"]);
    assert_eq!(ours("haul-mpi"), ["haul-core", "haul-fs", "haul-store"]);
    assert!(!ours("haul-cli").contains(&"haul-testkit".to_owned()), "the test kit is never shipped");
}

#[test]
fn the_pure_crate_has_no_runtime_and_no_network() {
    let pure = dependencies("haul-core");
    for banned in ["tokio", "futures", "hyper", "rustix", "libc", "tracing", "crossbeam-channel"] {
        assert!(!pure.contains(&banned.to_owned()), "haul-core must not depend on {banned}");
    }
}

#[test]
fn remotes_know_no_command_line_no_terminal_and_no_environment() {
    let imported = dependencies("haul-remotes");
    for banned in ["anyhow", "clap", "rpassword", "tracing-subscriber"] {
        assert!(!imported.contains(&banned.to_owned()), "haul-remotes must not depend on {banned}");
    }
    for (file, text) in sources("crates/haul-remotes/src") {
        for banned in ["std::env", "env::var", "home_dir", "stdin()", "SystemTime::now", "Timestamp::now"] {
            assert!(!text.contains(banned), "{file} uses {banned}");
        }
    }
}

#[test]
fn front_ends_with_words_of_their_own_know_no_flags_of_hauls() {
    for name in ["haul-terminal", "haul-rsync", "haul-dcp"] {
        for banned in ["clap", "tracing-subscriber"] {
            assert!(!dependencies(name).contains(&banned.to_owned()), "{name} must not depend on {banned}");
        }
    }
}

#[test]
fn one_file_reads_the_environment() {
    let folders = ["haul-cli", "haul-terminal", "haul-rsync", "haul-dcp"].map(|name| format!("crates/{name}/src"));
    let all = folders.iter().flat_map(|folder| sources(folder));
    for (file, text) in all.filter(|(file, _)| !file.ends_with("haul-cli/src/environment.rs")) {
        for banned in ["env::var", "home_dir("] {
            assert!(!text.contains(banned), "{file} uses {banned}");
        }
    }
}

/// But `haul-mem`, which its tests have: that nothing else of it does is held by the cargo graph, see above.
#[test]
fn the_engine_knows_no_store_by_name() {
    let folders = [
        "crates/haul/src",
        "crates/haul-bench/src",
        "crates/haul-cas/src",
        "crates/haul-dvc/src",
        "crates/haul-snapshot/src",
    ];
    // What `haul-remotes` imports beside the ground that all share.
    let known = ["haul-core", "haul-mem", "haul-store"];
    let stores: Vec<String> = dependencies("haul-remotes")
        .into_iter()
        .filter(|name| name.starts_with("haul-") && !known.contains(&&**name))
        .map(|name| name.replace('-', "_"))
        .collect();
    assert!(stores.len() > 12, "{stores:?}");
    for (file, text) in folders.into_iter().flat_map(sources) {
        for banned in &stores {
            assert!(!text.contains(banned), "{file} names {banned}");
        }
    }
}

#[test]
fn core_engine_and_stores_know_no_front_end_by_name() {
    let front_ends = [
        "haul-bench",
        "haul-cas",
        "haul-cli",
        "haul-dcp",
        "haul-dvc",
        "haul-fleet",
        "haul-mpi",
        "haul-rsync",
        "haul-snapshot",
        "haul-terminal",
        "haul-testkit",
    ];
    for folder in all_but(&front_ends) {
        for (file, text) in sources(&format!("crates/{folder}/src")) {
            // Comments may say whose habit something is, and formats have their texts.
            let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.contains('"');
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(is_code) {
                let code = line.split("//").next().unwrap_or_default().to_lowercase();
                for banned in ["rsync", "dcp", "dvc"] {
                    assert!(!code.contains(banned), "{file} names {banned}: {line}");
                }
            }
        }
    }
}

/// A dependency costs everybody who compiles, whether it is used or not.
#[test]
fn no_dependency_is_unused() {
    for name in crates() {
        let manifest = fs::read_to_string(workspace().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let folders = ["src", "tests", "examples", "benches"].map(|part| format!("crates/{name}/{part}"));
        let used = |places: &[String]| -> String {
            let there = places.iter().filter(|place| workspace().join(place).is_dir());
            there.flat_map(|place| sources_with_tests(place)).collect::<Vec<_>>().join("\n")
        };
        for (section, text) in [("[dependencies]", used(&folders[..1])), ("[dev-dependencies]", used(&folders))] {
            let Some(rest) = manifest.split(section).nth(1) else { continue };
            let lines = rest.split("\n[").next().unwrap_or_default().lines();
            for dependency in
                lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty())
            {
                // Its library has another name than the package.
                let library = if dependency == "md-5" { "md5".to_owned() } else { dependency.replace('-', "_") };
                let named = ["::", " as ", ";", "!", ","].iter().any(|end| text.contains(&format!("{library}{end}")));
                assert!(named || dependency.starts_with('#'), "{name} doesn't use {dependency} of its {section}");
            }
        }
    }
}

#[test]
fn formats_of_dvc_touch_no_disk() {
    let (content, repositories) = (sources("crates/haul-cas/src"), sources("crates/haul-dvc/src"));
    let of = |all: &[(String, String)], name: &str| {
        all.iter().find(|(file, _)| file.ends_with(&format!("/{name}.rs"))).unwrap().clone()
    };
    let content = ["address", "manifest"].map(|name| of(&content, name));
    let repositories = ["config", "dvcfile"].map(|name| of(&repositories, name));
    for (file, text) in content.into_iter().chain(repositories) {
        for banned in ["std::fs", "rustix", "tokio", "haul_store", "haul::"] {
            assert!(!text.contains(banned), "{file} uses {banned}");
        }
    }
}

#[test]
fn formats_of_snapshots_touch_no_disk() {
    let all = sources("crates/haul-snapshot/src");
    let of = |name: &str| all.iter().find(|(file, _)| file.ends_with(&format!("/{name}.rs"))).unwrap();
    for (file, text) in ["diff", "name", "record", "tree"].map(of) {
        for banned in ["std::fs", "rustix", "tokio", "haul_store", "haul::"] {
            assert!(!text.contains(banned), "{file} uses {banned}");
        }
    }
}

#[test]
fn only_the_command_line_prints() {
    // Programs of their own have an output too.
    for folder in all_but(&["haul-cli", "haul-mpi", "haul-terminal", "haul-testkit"]) {
        for (file, text) in sources(&format!("crates/{folder}/src")) {
            for banned in ["println!(", "eprintln!(", "print!(", "dbg!("] {
                assert!(!text.contains(banned), "{file} uses {banned}");
            }
        }
    }
}

#[test]
fn no_file_of_tests_is_forgotten() {
    let with_tests = crates().into_iter().filter(|name| workspace().join(format!("crates/{name}/tests/all")).is_dir());
    for name in with_tests {
        for (file, _) in sources(&format!("crates/{name}/tests/all")) {
            let path = Path::new(&file);
            let folder = path.parent().unwrap();
            let (module, beside) = match path.file_name().unwrap().to_str().unwrap() {
                "main.rs" => continue,
                "mod.rs" => (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap()),
                other => (other.strip_suffix(".rs").unwrap(), folder),
            };
            let root = ["main.rs", "mod.rs"].map(|n| beside.join(n)).into_iter().find(|p| p.exists()).unwrap();
            let named = fs::read_to_string(root).unwrap().lines().any(|l| l == format!("mod {module};"));
            assert!(named, "{file} is compiled by nobody: name it in the file that holds its folder together");
        }
    }
}

/// Every Rust file below a folder: path, and text up to its tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let product = |text: String| text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
    files(folder).into_iter().map(|(file, text)| (file, product(text))).collect()
}

fn sources_with_tests(folder: &str) -> Vec<String> {
    files(folder).into_iter().map(|(_, text)| text).collect()
}

fn files(folder: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, out: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut out = Vec::new();
    walk(&workspace().join(folder), &mut out);
    assert!(!out.is_empty(), "{folder} has no sources");
    out
}
