//! The documentation beside the real binary: the reference is what haul writes, pages name no flag that haul doesn't have, links
//! lead somewhere, and there is a man page for each command.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the binary prints for these arguments.
fn haul(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(args).env_clear().output().unwrap();
    assert!(output.status.success(), "haul {args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page for users by its path: the README, and what is in `docs` but measurements and decisions.
fn pages() -> BTreeMap<PathBuf, String> {
    let folders = ["docs", "docs/stores"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([root().join("README.md")]);
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Every `--flag` in a text. Two hyphens that continue a word, and rulers of hyphens, are none.
fn flags(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if !(before.is_alphanumeric() || before == '-') && text[at..].starts_with("--") {
            let is_part = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
            let name: String = text[at + 2..].chars().take_while(is_part).collect();
            let name = name.trim_end_matches('-');
            if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                found.insert(format!("--{name}"));
            }
        }
        before = c;
    }
    found
}

/// The places of a page's headings, as GitHub names them.
fn places(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// The targets of a page's links that aren't addresses.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

#[test]
fn the_reference_is_what_haul_writes() {
    let written = fs::read_to_string(root().join("docs/reference.md")).unwrap();
    assert!(written == haul(&["generate", "reference"]), "docs/reference.md is out of date: type make reference");
}

#[test]
fn pages_name_no_flag_that_haul_does_not_have() {
    let mut real = flags(&haul(&["generate", "reference"]));
    // Without rsync's and dcp's options, of which some are called as flags of rclone.
    let own = flags(&haul(&["help", "flags"]));
    // Those of clap, of cargo, of dvc.
    real.extend(["--help", "--dry", "--locked", "--path", "--release"].map(str::to_owned));
    // Those of haul-mpi, dsync, mpirun and Slurm.
    let clusters = [
        "--aggressive",
        "--base",
        "--batch-files",
        "--contents",
        "--daos-preserve",
        "--dryrun",
        "--enable-recovery",
        "--hang",
        "--lite",
        "--log",
        "--mpi",
        "--ntasks-per-node",
        "--patience",
        "--requeue",
        "--signal",
        "--text",
        "--traceless",
        "--wrap",
    ];
    real.extend(clusters.map(str::to_owned));
    // These two are about other programs.
    let others = ["benchmarks.md", "cloudsim.md"];
    for (path, page) in pages().into_iter().filter(|(path, _)| !others.iter().any(|other| path.ends_with(other))) {
        // The last part of the page on rclone names those of rclone's that haul doesn't have.
        let (page, missing) = page.split_once("\n## Missing\n").unwrap_or((&page, ""));
        let unknown: Vec<_> = flags(page).into_iter().filter(|flag| !real.contains(flag)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
        let present: Vec<_> = flags(missing).into_iter().filter(|flag| own.contains(flag)).collect();
        assert!(present.is_empty(), "{}: haul has {present:?}", path.display());
    }
}

#[test]
fn the_reference_has_all_that_help_has() {
    let reference = flags(&haul(&["generate", "reference"]));
    let help = flags(&haul(&["help", "flags"]));
    assert!(help.len() > 100, "{}", help.len());
    assert_eq!(help.difference(&reference).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut count = 0;
    for (path, page) in &pages {
        for link in links(page) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let target = target.canonicalize().unwrap_or_else(|_| panic!("{}: no file for {link}", path.display()));
            if let Some(page) = pages.get(&target).filter(|_| !place.is_empty()) {
                assert!(places(page).contains(place), "{}: no heading for {link}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn every_store_has_a_page() {
    let types: serde_json::Value = serde_json::from_str(&haul(&["config", "providers"])).unwrap();
    let types = types.as_array().unwrap();
    assert!(types.len() > 3, "{}", types.len());
    for kind in types.iter().map(|kind| kind["Name"].as_str().unwrap()) {
        assert!(root().join("docs/stores").join(kind).with_extension("md").is_file(), "{kind}");
    }
}

#[test]
fn each_command_has_a_man_page_and_long_flags_are_in_one() {
    let dir = tempfile::tempdir().unwrap();
    haul(&["generate", "man", dir.path().to_str().unwrap()]);
    let pages: BTreeMap<String, String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    for name in ["haul.1", "haul-copy.1", "haul-config-create.1", "haul-dvc-push.1", "haul-rsync.1", "haul-dcp.1"] {
        assert!(pages.contains_key(name), "{name}");
    }
    assert!(!pages.contains_key("haul-generate.1"));
    let having =
        |text: &str| pages.iter().filter(|(_, page)| page.contains(text)).map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(having(r"\fB\-\-s3\-access\-key\-id\fR"), ["haul.1"]);
    assert_eq!(having(r"\fB\-\-link\-dest\fR"), ["haul-rsync.1"]);
    assert!(pages["haul.1"].contains(".SH \"EXIT STATUS\"") && pages["haul.1"].contains("HAUL_CONFIG"));
    let Some(groff) = haul_testkit::peers::need("groff") else { return };
    for name in pages.keys() {
        let checked = Command::new(&groff)
            .args(["-man", "-ww", "-z", "-Kutf8", "-Tutf8"])
            .arg(dir.path().join(name))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&checked.stderr), "", "{name}");
    }
}

#[test]
fn flags_and_links_are_found_in_text() {
    let found = flags("`--a-b=1`, (--c) x--no --- |---| --d. `--s3-x2`");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["--a-b", "--c", "--d", "--s3-x2"]);
    assert_eq!(links("[a](b.md#c) and [d](https://e) [f](#g)"), ["b.md#c", "#g"]);
    assert!(places("# A (b), c's `d`\n").contains("a-b-cs-d"));
}
