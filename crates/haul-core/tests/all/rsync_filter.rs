//! rsync's filter rules as a table: what is hidden at the source, what is protected at the destination. That rsync itself
//! sees them so is tried in haul-cli's tests.

use crate::filter_wire::{Asked, crossed};
use haul_core::{
    Entry, Key,
    filter::{
        Filter,
        first_match::{Builder, RuleError, RuleFiles, RuleSet, SelectedNames, Selection, Side},
    },
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

/// Rule files in memory.
#[derive(Debug, Default)]
struct Files(BTreeMap<&'static str, &'static str>);

impl RuleFiles for Files {
    fn of_dir(&self, dir: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(self.named(&[dir, name].concat()).ok())
    }

    fn named(&self, path: &[u8]) -> Result<Vec<u8>, String> {
        let path = String::from_utf8_lossy(path).into_owned();
        self.0.get(path.as_str()).map(|text| text.as_bytes().to_vec()).ok_or(format!("{path}: not there"))
    }
}

fn compiled(rules: &[&str], delete_excluded: bool, files: &[(&'static str, &'static str)]) -> Result<RuleSet, String> {
    let files = Files(files.iter().copied().collect());
    let mut builder = Builder::new(b"/top/src/".to_vec(), Arc::new(files), delete_excluded, false);
    for rule in rules {
        builder.filter(rule.as_bytes()).map_err(|(RuleError::Rule(line) | RuleError::File(line))| line)?;
    }
    Ok(builder.build())
}

fn hides(rules: &[&str], name: &str) -> bool {
    let set = compiled(rules, false, &[]).unwrap();
    set.leaves_out(name.as_bytes(), name.ends_with('/'), Side::Hide, false)
}

#[test]
fn a_pattern_matches_names_as_in_rsync() {
    for (pattern, yes, no) in [
        ("a", "a|x/a|x/y/a|a/", "ab|x/ab|a/b"),
        ("/a", "a|a/", "x/a"),
        ("a/", "a/|x/a/", "a|x/a"),
        ("a/b", "a/b|x/a/b|a/b/", "b|xa/b|a/x/b"),
        ("/a/b", "a/b", "x/a/b"),
        ("*.o", "k.o|x/k.o|.o", "k.oo|k.o/x"),
        ("/*.o", "k.o", "x/k.o"),
        ("a*c", "ac|abc", "a/c"),
        ("a?c", "abc", "ac|a/c"),
        ("**", "a|a/b|a/b/", ""),
        ("**/a", "a|x/a|x/y/a", "xa"),
        ("/**/a", "x/a|x/y/a", "a"),
        ("a/**", "a/b|a/b/c|x/a/b", "a/|xa/b"),
        ("a/***", "a/|a/b|a/b/c|x/a/", "a"),
        ("a**c", "ac|a/b/c|x/a/c", "ab"),
        ("[ab]", "a|b", "c|ab"),
        ("[!ab]", "c", "a"),
        ("[^ab]c", "xc", "ac|/c"),
        ("[a-c]x", "bx", "dx"),
        ("[]]", "]", "["),
        ("[[:digit:]]", "5", "a"),
        ("[\\]]", "]", "a"),
        ("a\\*", "a*", "ab|a\\*"),
        ("a\\b", "a\\b", "ab"),
        ("x/*/b", "x/y/b|q/x/y/b", "x/b|x/y/z/b"),
    ] {
        for name in yes.split('|').filter(|name| !name.is_empty()) {
            assert!(hides(&[&format!("- {pattern}")], name), "{pattern} should match {name}");
        }
        for name in no.split('|').filter(|name| !name.is_empty()) {
            assert!(!hides(&[&format!("- {pattern}")], name), "{pattern} shouldn't match {name}");
        }
    }
}

#[test]
fn each_sign_speaks_to_its_side() {
    for (rules, hidden, protected) in [
        (&["- x"][..], true, true),
        (&["exclude x"], true, true),
        (&["H x"], true, false),
        (&["hide x"], true, false),
        (&["-s x"], true, false),
        (&["P x"], false, true),
        (&["protect_x"], false, true),
        (&["-r x"], false, true),
        (&["R x", "- x"], true, false),
        (&["S x", "- x"], false, true),
        (&["+ x", "- x"], false, false),
        (&["- x", "!"], false, false),
        (&["-! y"], true, true),
        (&["-! x"], false, false),
        (&["exclude,! y"], true, true),
        (&["- y", "- /x/"], false, false),
        (&["-/ /top/src/x"], true, true),
        (&["-/ /x"], false, false),
    ] {
        let set = compiled(rules, false, &[]).unwrap();
        let out = |side| set.leaves_out(b"x", false, side, false);
        assert_eq!((out(Side::Hide), out(Side::Protect)), (hidden, protected), "{rules:?}");
    }
    let set = compiled(&["- x", "P y"], true, &[]).unwrap();
    let protected = |name: &str| set.leaves_out(name.as_bytes(), false, Side::Protect, false);
    assert!(!protected("x") && protected("y"), "--delete-excluded leaves only P its effect");
    let set = compiled(&["-p x"], false, &[]).unwrap();
    assert!(set.leaves_out(b"x", false, Side::Protect, false) && !set.leaves_out(b"x", false, Side::Protect, true));
}

#[test]
fn directories_bring_rules_of_their_own() {
    let files = [
        ("/top/.rules", "- above\n"),
        ("/top/src/.rules", "- *.o\n- /here\n"),
        ("/top/src/d/.rules", "+ keep.o\n- /only\n"),
        ("/top/src/e/.rules", "!\n- y\n"),
        ("/top/src/bad/.rules", "? x\n"),
    ];
    let set = compiled(&[": /.rules"], false, &files).unwrap();
    let hides = |name: &str| set.leaves_out(name.as_bytes(), false, Side::Hide, false);
    for name in ["k.o", "here", "d/k.o", "d/only", "d/e/f.o", "above", "d/above", "e/y", "bad/k.o"] {
        assert!(hides(name), "{name}");
    }
    for name in ["d/keep.o", "d/here", "d/e/keep.o", "d/e/only", "only", "e/k.o", "e/above", "k.c"] {
        assert!(!hides(name), "{name}");
    }
    assert_eq!(
        set.broken(),
        [RuleError::Rule(
            "/top/src/bad/.rules: bad filter rule \"? x\": it begins with none of - + . : H S P R !".into()
        )]
    );
    assert!(hides("bad/k.c") && set.is_broken(), "nobody knows what its rules leave out");
    assert!(set.leaves_out(b"bad/k.c", false, Side::Protect, true));
    let set = compiled(&[":n .rules"], false, &files).unwrap();
    assert!(!set.leaves_out(b"d/k.o", false, Side::Hide, false), "n: not below");
    assert!(set.leaves_out(b"k.o", false, Side::Hide, false));
    let set = compiled(&[":e .rules"], false, &files).unwrap();
    assert!(set.leaves_out(b"d/.rules", false, Side::Hide, false), "e: the file itself");
}

#[test]
fn files_of_directories_name_further_files() {
    let files = [
        ("/top/src/.rules", ": .more\n- *.bak\n"),
        ("/top/src/.more", "- x\n"),
        ("/top/src/d/.more", "+ x.bak\n- /only\n"),
        ("/top/src/d/e/.more", "!\n- z\n"),
        // Relative to where the transfer begins.
        ("/top/src/f/.rules", "- q\n. flist\n"),
        ("/top/src/flist", "- r\n: .own\n. h/more\n"),
        ("/top/src/f/h/more", "- t\n"),
        ("/top/src/f/.own", "- s\n: .rules\n: .own\n"),
        ("/top/src/g/.rules", ":C\n"),
        ("/top/src/g/.cvsignore", "one two\n"),
        ("/top/src/bad/.rules", ". missing\n"),
        ("/top/src/loop/.rules", ". .loop\n"),
        ("/top/src/.loop", ". .loop\n"),
    ];
    let set = compiled(&[": .rules"], false, &files).unwrap();
    let hides = |name: &str| set.leaves_out(name.as_bytes(), false, Side::Hide, false);
    for name in
        ["x", "d/x", "k.bak", "d/k.bak", "d/only", "d/e/z", "f/q", "f/r", "f/s", "f/t", "f/h/s", "g/one", "g/two"]
    {
        assert!(hides(name), "{name}");
    }
    for name in ["d/x.bak", "only", "d/f/only", "d/e/x", "s", "r", "g/h/one", "h/q"] {
        assert!(!hides(name), "{name}");
    }
    assert!(!set.is_broken());
    assert!(hides("bad/any") && hides("loop/any"));
    assert_eq!(
        set.broken(),
        [
            RuleError::File("/top/src/bad/.rules: bad filter rule \". missing\": no such file".into()),
            RuleError::Rule(
                "/top/src/loop/.rules: bad filter rule \". .loop\": rule files in rule files, 16 deep".into()
            ),
        ]
    );
}

#[test]
fn files_of_rules_are_taken_in() {
    let files = [("list", "# no\n; no\n\n- a\n+ b\n"), ("words", "a b"), ("loop", ". loop\n")];
    let set = compiled(&[". list"], false, &files).unwrap();
    assert!(set.leaves_out(b"a", false, Side::Hide, false) && !set.leaves_out(b"b", false, Side::Hide, false));
    let set = compiled(&[".-w words"], false, &files).unwrap();
    assert!(set.leaves_out(b"a", false, Side::Hide, false) && set.leaves_out(b"b", false, Side::Hide, false));
    let error = |rule: &str| compiled(&[rule], false, &files).unwrap_err();
    assert_eq!(error(". none"), "none: not there");
    assert_eq!(error(". loop"), "bad filter rule \". loop\": rule files in rule files, 16 deep");
}

#[test]
fn what_is_wrong_is_named() {
    for (rule, why) in [
        ("x", "it begins with none of - + . : H S P R !"),
        ("", "it begins with none of - + . : H S P R !"),
        ("- ", "the pattern is empty"),
        ("-q x", "unknown modifier 'q'"),
        ("-x x", "rules for the names of attributes (x) aren't supported"),
        ("- [a", "'[' without ']'"),
        ("! x", "! stands alone"),
        (". ", "it names no file"),
        (": a/b", "a file of each directory is named without its path"),
    ] {
        assert_eq!(compiled(&[rule], false, &[]).unwrap_err(), format!("bad filter rule \"{rule}\": {why}"));
    }
}

fn filter(rules: &[&str], only: Option<(&[&str], bool)>, prefix: &str) -> Filter {
    let only = only
        .map(|(names, recursive)| SelectedNames::new(names.iter().map(|n| n.as_bytes().to_vec()).collect(), recursive));
    let rules = compiled(rules, false, &[]).unwrap();
    Filter::first_match(Selection::new(rules, only, prefix.as_bytes().to_vec()), None, None)
}

fn wants(filter: &Filter, name: &str) -> bool {
    let key = Key::new(name);
    if name.ends_with('/') { filter.descend(name.as_bytes()) } else { filter.wants(&Entry::file(key, 1)) }
}

#[test]
fn a_directory_that_is_left_out_takes_all_below_it_along() {
    let f = filter(&["- d/", "+ d/x"], None, "");
    assert!(!wants(&f, "d/x") && !wants(&f, "e/d/y/z") && wants(&f, "d"));
    // Rules see a symlink's name.
    let f = filter(&["- *.o"], None, "");
    assert!(!f.wants(&Entry::with_bytes(Key::symlink("a.o"), 1)) && wants(&f, "a.o.rclonelink") && wants(&f, "a.o.c"));
    let f = filter(&["- /src/a"], None, "src/");
    assert!(!wants(&f, "a") && wants(&f, "b/a") && f.wants_root());
    assert!(!filter(&["- src/"], None, "src/").wants_root());
}

#[test]
fn only_what_arguments_name_is_seen() {
    let f = filter(&[], Some((&["a", "d/e"], true)), "");
    for (name, wanted) in
        [("a", true), ("b", false), ("d/", true), ("d/x", false), ("d/e/", true), ("d/e/f/g", true), ("a/x", true)]
    {
        assert_eq!(wants(&f, name), wanted, "{name}");
    }
    let f = filter(&[], Some((&["d/e"], false)), "");
    assert!(wants(&f, "d/e/") && !wants(&f, "d/e/x"));
    let may = |filter: &Filter, name: &str| filter.may_delete(&Key::new(name), false);
    let f = filter(&["P keep"], Some((&["a", "d/e"], true)), "");
    assert!(may(&f, "d/e/x") && !may(&f, "d/x") && !may(&f, "other") && !may(&f, "d/e/keep"));
}

#[test]
fn rules_that_no_directory_adds_to_cross_a_wire() {
    let only = Some((&["src/d", "src/e/f"][..], true));
    for (rules, only) in
        [(&["- *.o", "+ /src/d/**/k", "-s d/x/", "P q"][..], None), (&["-/ /top/src/d/x", "-! *x*"], None), (&[], only)]
    {
        let near = filter(rules, only, if only.is_some() { "" } else { "src/" });
        for near in [near.clone(), near.for_destination()] {
            let far = crossed(&near);
            for name in ["a.o", "d/", "d/x/", "d/x/k", "d/x/y/k", "d/q", "e/", "e/f", "src/d/", "src/e/f/g", "src/g/"] {
                assert_eq!(wants(&near, name), wants(&far, name), "{rules:?} {name}");
                let key = Key::new(name);
                assert_eq!(near.may_delete(&key, false), far.may_delete(&key, false), "{rules:?} {name}");
            }
        }
    }
    let none = Selection::new(compiled(&[], false, &[]).unwrap(), None, Vec::new());
    let sizes = Filter::first_match(none, None, Some(20_000));
    assert_eq!(wants(&crossed(&sizes), "a"), wants(&sizes, "a"), "no rules, but a limit of size");
    let per_dir = filter(&[": .rules"], None, "");
    assert!(!per_dir.is_portable() && serde_json::to_string(&Asked { filter: Some(Arc::new(per_dir)) }).is_err());
}

#[test]
fn the_destination_shows_what_it_may_lose() {
    let f = filter(&["H h", "P p", "- x", "-p w"], None, "");
    let there = f.for_destination();
    for (name, src, dst) in
        [("h", false, true), ("p", true, true), ("x", false, false), ("w", false, true), ("y", true, true)]
    {
        assert_eq!((wants(&f, name), wants(&there, name)), (src, dst), "{name}");
    }
    assert!(filter(&[], None, "").is_all());
}

/// Rule files in the destination's directories count for deletions; those of the source don't.
#[test]
fn the_destination_may_lose_what_its_own_rules_let_go() {
    let files = [
        ("/top/src/.rules", "- x\n"),
        ("/top/src/d/.rules", "P z\n"),
        ("/top/dst/.rules", "P y\n- w\n"),
        ("/top/dst/d/.rules", "P /v\n"),
        ("/top/.rules", "P /dst/t\n"),
    ];
    let set = |root: &[u8]| {
        let files = Files(files.into_iter().collect());
        let mut rules = Builder::new(root.to_vec(), Arc::new(files), false, false).with_absolute(b"/top/src/".to_vec());
        rules.filter(b": /.rules").unwrap();
        rules.filter(b"-/ /top/src/u").unwrap();
        rules.build()
    };
    let selection = Selection::new(set(b"/top/src/"), None, Vec::new()).with_kept(Some(set(b"/top/dst/")));
    let f = Filter::first_match(selection, None, None);
    let may = |name: &str| f.may_delete(&Key::new(name), false);
    for name in ["x", "d/x", "z", "d/z", "v", "d/e/v", "d/t", "d/u"] {
        assert!(may(name), "{name}");
    }
    for name in ["y", "w", "d/y", "d/w", "d/v", "t", "u"] {
        assert!(!may(name), "{name}");
    }
    assert!(!wants(&f, "x") && wants(&f, "y") && wants(&f, "w"));
    let there = f.for_destination();
    assert!(wants(&there, "x") && wants(&there, "w"), "what the source shows, and what the destination may lose");
}

proptest! {
    /// A name with its wild characters escaped matches itself, anchored, and nothing longer.
    #[test]
    fn an_escaped_name_matches_itself(name in "[a-c*?.\\[\\]\\\\-]{1,8}(/[a-c*?\\[\\\\]{1,4}){0,2}") {
        let wild = name.contains(['*', '?', '[']);
        let escape = |c: char| if wild && "*?[\\".contains(c) { format!("\\{c}") } else { c.to_string() };
        let pattern: String = name.chars().map(escape).collect();
        let rule = format!("- /{pattern}");
        prop_assert!(hides(&[&rule], &name));
        let longer = format!("{name}z");
        prop_assert!(!hides(&[&rule], &longer));
    }
}
