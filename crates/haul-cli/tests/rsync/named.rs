//! What arguments and lists name one by one: symlinks that rules leave out or follow.

use super::{each, oracle::Compare};

/// Symlinks of each kind, and lists that name one.
const LINKS: &str = "mkdir -p s/d dst; echo out >out; echo y >s/d/y; ln -s /nowhere/else s/abs; ln -s ../out s/up; ln -s d s/ld; ln -s d/y s/in
ln -s ../d/y s/d/back; for name in abs up ld in d/back; do echo $name >list_${name#d/}; done
find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +";

#[test]
fn one_link_that_leads_out_is_left_out_as_among_many() {
    let paths = "s/abs dst/|s/abs dst/n|s/up dst/n|s/in dst/n|-R s/./abs dst/n|--files-from=list_abs s dst/n\
                 |--files-from=list_up s dst|--files-from=list_in s dst/n|--files-from=list_back s dst/n|s/abs s/in dst";
    let lines: Vec<String> = ["-li", "-ni -a", "-a --info=name"]
        .iter()
        .flat_map(|options| paths.split('|').map(move |path| format!("{options} --safe-links {path}")))
        .collect();
    each(LINKS, Compare::All, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn one_link_that_is_followed_is_looked_at_as_it_comes() {
    let lines = [
        "-rlti --copy-unsafe-links --files-from=list_up s dst/n",
        "-rlti --copy-unsafe-links --files-from=list_in s dst/n",
        "-rltk --files-from=list_ld s dst/n",
        "-rltki --files-from=list_ld s dst/n",
        "-rltki s/ld dst/n",
        "-ltkid --files-from=list_ld s dst/n",
        "-rltki --copy-unsafe-links -R s/./up dst/n",
    ];
    each(LINKS, Compare::All, &lines);
}
