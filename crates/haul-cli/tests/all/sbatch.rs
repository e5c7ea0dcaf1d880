//! `haul sbatch`: bash reads what it writes, and starts the command with its own words.

use haul_testkit::{
    folder::write,
    lab::{Lab, until},
};
use std::{os::unix::fs::PermissionsExt as _, process::Command};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

#[test]
fn the_script_runs_the_command_and_queues_itself_again_when_it_was_stopped() {
    let lab = Lab::new(HAUL);
    let typed =
        ["--nodes", "4", "--partition", "dtn", "--time", "1-00:00:00", "dcp", "-p", "/scratch/it's", "/project/a b"];
    let script = lab.haul(&[&["sbatch"][..], &typed].concat()).ok().out;
    for line in [
        "#SBATCH --partition=dtn",
        "#SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16",
        "#SBATCH --mem=8G --time=1-00:00:00",
    ] {
        assert!(script.lines().any(|l| l == line), "{line} is missing in {script}");
    }
    write(&lab.path("script"), script.as_bytes(), 1);
    // In the place of Slurm's commands: each says with which words it was called.
    for (tool, code) in [("srun", 20), ("scontrol", 0)] {
        let path = lab.path(&format!("bin/{tool}"));
        write(&path, format!("#!/bin/bash\nprintf '[%s]' {tool} \"$@\"\necho\nexit {code}\n").as_bytes(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", lab.path("bin").display(), std::env::var("PATH").unwrap());
    let ran =
        Command::new("bash").arg(lab.path("script")).env("PATH", path).env("SLURM_JOB_ID", "77").output().unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(stdout, "[srun][haul-mpi][dcp][-p][/scratch/it's][/project/a b]\n[scontrol][requeue][77]\n");
    assert_eq!(ran.status.code(), Some(20));
    // The code that the script waits for is the one that each command ends with; dcp's is haul-mpi's.
    for (words, code) in
        [(&["--bwlimit=100k", "dcp"][..], 20), (&["rsync", "--bwlimit=100"], 20), (&["--bwlimit=100k", "copy"], 130)]
    {
        write(&lab.path("large/file"), &[7; 1 << 20], 1);
        let from = lab.path("large");
        let child = lab.start(
            &[words, &["-r"][..usize::from(words.contains(&"rsync"))], &[from.to_str().unwrap(), "@to"]].concat(),
        );
        assert!(until(|| lab.path("to").exists()), "{words:?}");
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        lab.end(child).code(code);
        std::fs::remove_dir_all(lab.path("to")).unwrap();
    }
    // A check can't be gone on with, so its script doesn't queue it again.
    let check = lab.haul(&["sbatch", "--nodes", "2", "haul-mpi", "check", "/a", "/b"]).ok().out;
    assert!(check.ends_with("srun haul-mpi check /a /b\n") && !check.contains("requeue"), "{check}");
    assert!(check.contains("#SBATCH --job-name=haul-check\n"), "{check}");
    let refused = lab.haul(&["sbatch", "--nodes", "2", "sync", "a", "b"]);
    assert!(refused.err.contains("haul sync runs on one node: leave --nodes out"), "{}", refused.err);
}
