//! Completion in the shells themselves: commands, flags, remotes, paths on remotes and on this machine. A shell that isn't
//! installed is skipped.

use haul_testkit::{folder::write, lab::Lab, peers};
use std::{fs, path::Path, process::Command};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    let (files, other) = (lab.path("files"), lab.path("my other"));
    write(&files.join("sub/deep"), b"x", 1);
    write(&files.join("a file"), b"x", 1);
    write(&other.join("x"), b"x", 1);
    fs::write(lab.config(), format!("[minio]\ntype = alias\nremote = {}\n[mirror]\ntype = local\n", files.display()))
        .unwrap();
    for shell in ["bash", "zsh", "fish"] {
        fs::write(lab.path(shell), lab.haul(&["completion", shell]).ok().out).unwrap();
    }
    lab
}

/// What a shell says to a script of its own, with haul in its path and the lab's configuration.
fn run(lab: &Lab, shell: &str, args: &[&str]) -> Vec<String> {
    let folder = Path::new(HAUL).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell);
    command
        .args(args)
        .current_dir(lab.path(""))
        .env("PATH", path)
        .env("HOME", lab.path("home"))
        .env("RCLONE_CONFIG", lab.config());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{shell} {args:?}\n{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What bash offers at the end of a line, as its readline takes it.
fn bash(lab: &Lab, line: &str) -> Vec<String> {
    let script = r#"source ./bash; complete -p haul >/dev/null || exit 1
        COMP_LINE=$1; COMP_POINT=${#1}; COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'; _haul
        printf '%s\n' "${COMPREPLY[@]}""#;
    run(lab, "bash", &["--norc", "-c", script, "bash", line])
}

#[test]
fn the_scripts_are_small() {
    let lab = lab();
    let size: u64 = ["bash", "zsh", "fish"].iter().map(|shell| fs::metadata(lab.path(shell)).unwrap().len()).sum();
    assert!(size < 10_000, "{size}");
    // There are no others.
    let ran = lab.haul(&["completion", "powershell"]).code(2);
    assert!(ran.err.contains("invalid value 'powershell' for '<SHELL>'"), "{}", ran.err);
}

#[test]
fn bash_completes_commands_flags_remotes_and_paths() {
    if peers::need("bash").is_none() {
        return;
    }
    let lab = lab();
    for (line, offered) in [
        ("haul snap", &["snapshot"][..]),
        ("haul config encr", &["encryption"]),
        ("haul copy --cutoff-mode=s", &["soft"]),
        ("haul ls --human", &["--human-readable"]),
        ("haul ls mi", &["minio:", "mirror:"]),
        // bash takes what follows the colon for a word of its own.
        ("haul ls minio:", &["a\\ file", "sub/"]),
        ("haul ls minio:sub/d", &["sub/deep"]),
        ("haul copy my", &["my\\ other/"]),
        ("haul copy my\\ other/", &["my\\ other/x"]),
        ("haul copy minio:sub fi", &["fish", "files/"]),
        ("haul config show mir", &["mirror"]),
        ("haul config reconnect mir", &["mirror:"]),
        ("haul cryptdecode min", &["minio:"]),
        ("haul cat nothing:", &[""]),
    ] {
        let mut found = bash(&lab, line);
        found.sort_unstable();
        let mut offered = offered.to_vec();
        offered.sort_unstable();
        assert_eq!(found, offered, "{line}");
    }
}

#[test]
fn zsh_completes_the_same() {
    if peers::need("zsh").is_none() {
        return;
    }
    // Outside of a completion zsh has no compadd: what would be offered is printed.
    let script = "compdef() { }; compadd() { print -l -- \"${(@P)@[-1]}\" }; source ./zsh; words=(haul ls minio:); CURRENT=3; _haul";
    assert_eq!(run(&lab(), "zsh", &["-fc", script]), ["minio:sub/", "minio:a file"]);
}

#[test]
fn fish_completes_the_same() {
    if peers::need("fish").is_none() {
        return;
    }
    let script = "source ./fish; complete -C 'haul ls minio:'";
    assert_eq!(run(&lab(), "fish", &["-c", script]), ["minio:a file", "minio:sub/"]);
}

/// The password of an encrypted configuration comes from where the command line says; nobody is asked.
#[test]
fn an_encrypted_configuration_is_read_by_its_password_command() {
    let lab = lab();
    let mut set = lab.haul_command(&["config", "encryption", "set"]);
    assert!(set.env("HAUL_CONFIG_PASS", "pw").status().unwrap().success());
    let says = |words: &[&str], variable: Option<&str>| {
        let mut command = lab.haul_command(&[&["__complete", "fish"], words].concat());
        if let Some(value) = variable {
            command.env("RCLONE_PASSWORD_COMMAND", value);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(says(&["ls", "mi"], None), "");
    assert_eq!(says(&["--password-command", "echo pw", "ls", "mi"], None), "minio:\nmirror:\n");
    assert_eq!(says(&["--password-command=echo pw", "ls", "minio:s"], None), "minio:sub/\n");
    assert_eq!(says(&["ls", "mi"], Some("echo pw")), "minio:\nmirror:\n");
}

/// With `-l` a symlink's key has an ending that isn't shown anywhere.
#[test]
fn a_symlink_is_offered_by_a_name_that_can_be_typed() {
    let lab = lab();
    std::os::unix::fs::symlink("a file", lab.path("files/link")).unwrap();
    let folder = format!("mirror:{}/li", lab.path("files").display());
    for (links, name) in [("true", "nk.rclonelink"), ("false", "nk")] {
        let mut command = lab.haul_command(&["__complete", "fish", "ls", &folder]);
        let ran = command.env("HAUL_LINKS", links).output().unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("{folder}{name}\n"), "links: {links}");
    }
}
