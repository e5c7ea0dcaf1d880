//! Owners, groups and permissions that options change on their way, or that the destination says.

use super::{
    each,
    oracle::{Compare, Oracle},
};

/// Files of several owners and modes; what only root can make is left out elsewhere.
const OWNED: &str = r#"
mkdir -p s/d dst; echo f >s/f; echo g >s/d/g; echo h >s/h; chmod 644 s/f; chmod 2644 s/h; chmod 751 s/d; chmod 640 s/d/g
if [ $(id -u) = 0 ]; then chown 5:6 s/f; chown 7:8 s/d s/d/g; chown 1:1 s/h; chmod 2644 s/h; fi
find s dst -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn owners_become_whom_options_name() {
    if !is_root() {
        return;
    }
    let lines = [
        "-ri --chown=5:6 s/ dst",
        "-ai --chown=5:6 --no-o s/ dst",
        "-ai --no-o --chown=5:6 s/ dst",
        "-ai --chown=:9 s/ dst",
        "-ai --usermap=5:1,7-9:2 s/ dst",
        "-ri --usermap=daemon:3,*:4 --groupmap=6:0 s/ dst",
        "-ai --usermap=d*n:3 --groupmap=*:7 s/ dst",
        "-ai --usermap=no-such-user:3 s/ dst",
        "-ai --usermap=5:1 --usermap=6:1 s/ dst",
        "-ai --usermap=5:1 --chown=3 s/ dst",
        "-ai --chown=3 --usermap=5:1 s/ dst",
        "-ai --groupmap=5 s/ dst",
    ];
    each(OWNED, Compare::Attributes, &lines);
    // Existing files get another owner, or differ from those of the alternate destination.
    let there = [OWNED, "cp -a s/. dst; cp -a s other"].concat();
    let lines =
        ["-a --chown=5:6 s/ dst", "-ri --size-only --usermap=5:1 s/ dst", "-a --link-dest=../other --chown=5 s/ dst"];
    each(&there, Compare::Attributes, &lines);
    let new = [OWNED, "cp -a s other"].concat();
    each(
        &new,
        Compare::Attributes,
        &["-rt --link-dest=../other --chown=3:4 s/ dst", "-rt --copy-dest=../other --chown=3 s/ dst"],
    );
}

#[test]
fn names_of_one_file_are_compared_by_content_while_the_file_gets_its_permissions() {
    let setup = r#"
mkdir s dst; for i in $(seq 30); do echo hello$i >s/a$i; cp s/a$i s/b$i; chmod 600 s/?$i; done
find s -exec touch -d 2020-01-01T00:00:00Z {} +
for i in $(seq 30); do cp -p s/a$i dst/a$i; ln dst/a$i dst/b$i; chmod 644 dst/a$i; done; touch -d 2020-01-01T00:00:00Z dst
"#;
    each(setup, Compare::Attributes, &["-a -c s/ dst", "-a -c --delete s/ dst"]);
}

#[test]
fn set_id_bits_go_with_those_whose_rights_they_give() {
    // Of this one's own group the bit stays, whatever else is kept.
    let setup = "mkdir s dst; echo f >s/f; chmod 2755 s/f; touch -d 2020-01-01T00:00:00Z s/f s dst";
    each(setup, Compare::Attributes, &["-pti s/f dst", "-ptri s/ dst", "-rti s/ dst"]);
    let Some(oracle) = Oracle::new("mkdir s dst; echo f >s/f; chown 5:6 s/f; chmod 6755 s/f").filter(|_| is_root())
    else {
        return;
    };
    oracle.haul(&["-rp", "s/", "dst"]);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(oracle.folder().join("dst/f")).unwrap());
    assert_eq!(mode & 0o7777, 0o755, "rsync makes it root's, with the bits");
}

#[test]
fn permissions_are_copied_between_classes() {
    let lines = [
        "-ai --chmod=g=u s/ dst",
        "-ai --chmod=go=u s/ dst",
        "-ai --chmod=Fu-o,Dg=o s/ dst",
        "-ai --chmod=o+g,F+X s/ dst",
        "-ai --chmod=a+s s/ dst",
        "-ai --chmod=a=rx,u+w s/ dst",
        "-ri --chmod=g=u s/ dst",
        "-ri --chmod==u s/ dst",
    ];
    each(OWNED, Compare::Attributes, &lines);
    let there = [OWNED, "cp -a s/. dst; chmod 755 dst/f"].concat();
    each(&there, Compare::Attributes, &["-rti -E --chmod=F644 s/ dst", "-rti --chmod=F600 s/ dst"]);
}

#[test]
fn a_default_acl_says_what_new_files_get() {
    let setup = r#"
mkdir -p s/d t/to; echo f >s/f; echo x >s/x; echo g >s/d/g; chmod 777 s/x s/d; chmod 644 s/d/g; chmod 666 s/f
setfacl -dm u::7,g::7,o:5 t; setfacl -dm u::rwx,u:1:rwx,g::r-x,m::rwx,o::- t/to; umask 077
find s t -depth -exec touch -h -d 2020-01-01T00:00:00Z {} +
"#;
    let setfacl = std::process::Command::new("setfacl").arg("--version").output();
    let dir = tempfile::tempdir().unwrap();
    let can = |option: &[&str]| {
        std::process::Command::new("setfacl").args(option).arg(dir.path()).status().is_ok_and(|status| status.success())
    };
    if setfacl.is_err() || !can(&["-dm", "u::7"]) {
        return haul_testkit::peers::skip("setfacl, or a file system with ACLs");
    }
    each(
        setup,
        Compare::Attributes,
        &["-r s/ t/to", "-r s/ t/new", "-r --chmod=o-x s/ t/to/a", "-r --inplace s/f t/new"],
    );
}

/// A directory that is closed at the source lets nobody else in while it fills, whether permissions are kept or not.
#[test]
fn what_is_closed_at_the_source_is_closed_before_anything_is_in_it() {
    for options in ["-r", "-rp"] {
        let setup = "mkdir -p s/d/e; chmod 700 s s/d; chmod 750 s/d/e; head -c 4000000 /dev/zero >s/d/e/f";
        let Some(oracle) = Oracle::new(setup) else { return };
        oracle.set_up();
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_haul"))
            .args(["rsync", options, "--bwlimit=100", "s/", "new"])
            .current_dir(oracle.folder())
            .spawn()
            .unwrap();
        let new = oracle.folder().join("new");
        let holds = |dir: &str| std::fs::read_dir(new.join(dir)).is_ok_and(|mut held| held.next().is_some());
        while !holds("d/e") {
            assert!(run.try_wait().unwrap().is_none(), "the run ended early");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let modes = ["", "d", "d/e"].map(|dir| {
            let meta = std::fs::metadata(new.join(dir)).unwrap();
            std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o007
        });
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(modes, [0; 3], "{options}");
    }
}
