//! What arguments and lists name one by one: symlinks that rules leave out or follow, names behind symlinks, and `..`.

use super::{
    each,
    oracle::{Compare, Oracle},
};

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

#[test]
fn a_list_leads_to_nothing_above_its_source() {
    let names = "../t/g|sub/../../t/g|../f|d/./../f|/../f|..|./../f|sub/../../d/./y|d/../../f|../../..//f";
    for name in names.split('|') {
        let setup = format!(
            "mkdir -p s/d s/sub t dst; echo x>s/f; echo g>t/g; echo y>s/d/y; echo b>g; echo {name} >list
             find . -mindepth 1 -depth -exec touch -h -d 2020-01-01T00:00:00Z {{}} +"
        );
        each(&setup, Compare::All, &["-ai --files-from=list s dst", "-ai --files-from=list s dst/n"]);
    }
}

#[test]
fn what_is_behind_a_link_that_is_not_followed_is_said_not_to_come() {
    let Some(oracle) = Oracle::new(&[LINKS, "; printf 'ld/y\nin\n' >behind; printf 'ld/\nin\n' >in_it"].concat())
    else {
        return;
    };
    for named in ["--files-from=behind s", "--files-from=in_it s", "-r --files-from=in_it s", "-R s/./ld/ s/./in"] {
        let plain: Vec<&str> = ["-ai"].into_iter().chain(named.split_whitespace()).chain(["dst"]).collect();
        let (code, lines, errors) = oracle.haul(&plain);
        assert_eq!(code, Some(23), "{named} {errors}");
        assert!(errors.contains(r#""s/ld" is a symbolic link to a directory"#), "{named} {errors}");
        assert_eq!(lines, "cL+++++++++ in -> d/y", "{named}");
        let followed: Vec<&str> = ["-k"].into_iter().chain(plain).collect();
        oracle.same(&followed, Compare::All);
    }
}

#[test]
fn what_is_above_names_that_rules_leave_out_is_not_made() {
    let setup = r#"
mkdir -p s/.hid/d s/d/e dst/d; echo x | tee s/.hid/x s/.hid/.y s/.hid/d/.y s/d/.y s/d/e/.y >s/d/x; echo old >dst/d/old
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +; touch -d 2021-01-01T00:00:00Z dst/d
printf '.hid/.y\nd/.y\n' >none; printf '.hid/d/.y\n.hid/x\nd/e/.y\n' >some; printf '.hid/\nd/e/\n' >dirs
"#;
    let lists = ["--files-from=none", "--files-from=some", "-r --files-from=dirs", "--delete -r --files-from=dirs"];
    let lines = lists.map(|list| format!("-ai --exclude=.* {list} s dst"));
    each(setup, Compare::All, &lines.each_ref().map(String::as_str));
    let lines = ["--exclude=e/", "--exclude=/d", "--filter=-r_.y", "--filter=-s_.y", "--include=/d/.y --exclude=.y"]
        .map(|rule| format!("-ai {rule} --files-from=some s dst"));
    each(setup, Compare::All, &lines.each_ref().map(String::as_str));
    each(
        setup,
        Compare::All,
        &[
            "-aiR --exclude=.* s/./.none dst",
            "-aiR --exclude=.* s/./.hid/.y dst",
            "-aiR --exclude=.* s/./d/.y s/./d/x dst",
        ],
    );
}

#[test]
fn what_a_directory_holds_beside_the_names_goes() {
    let setup = r#"
mkdir -p s/p dst/p/pd dst/s/p dst/xd; touch s/a s/p/1 dst/x dst/p/y dst/p/pd/z dst/a dst/s/x dst/s/p/y dst/xd/y; printf 'p/\n' >list
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let lines = [
        "-dR --delete s/./ dst",
        "-dR --delete s/ dst",
        "-dR --delete s/./p dst",
        "-dR --delete s/./p/ dst",
        "-dR --delete --exclude=x s/./ dst",
        "-dR --delete -n s/./ dst",
        "-d --delete --files-from=list s dst",
        "-rR --delete s/./p dst",
    ];
    each(setup, Compare::Trees, &lines);
}
