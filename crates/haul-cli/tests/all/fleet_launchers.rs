//! Workers of `haul fleet` as the manual starts them: its scripts and files are taken from its page, and run here. Slurm's are in
//! `tests/mpi.py`, where Slurm is.

use super::fleet::signal;
use haul_testkit::{
    folder,
    lab::{Lab, until},
    peers,
    sshd::{Setup, Sshd},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    env, fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clusters.md")).unwrap()
}

/// The page's blocks of a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn fill(lab: &Lab) {
    for n in 0..60_u64 {
        folder::write(&lab.path(&format!("src/d{}/{n:02}", n % 4)), format!("{n}").as_bytes(), n);
    }
}

/// Exit codes of `work` by the table of the page: those after which it is to be started again, or not.
fn codes(page: &str, again: &str) -> BTreeSet<i64> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        cells.last().filter(|last| cells.len() == 3 && last.starts_with(again))?;
        cells[0].split(", ").map(|code| code.parse().ok()).collect::<Option<Vec<i64>>>()
    });
    rows.flatten().collect()
}

/// The scripts of the manual, on four workers of this machine.
#[test]
fn ray_and_dask_start_workers_as_the_manual_says() {
    let Some(python) = peers::need("schedulers") else { return };
    let lab = Lab::new(HAUL);
    fill(&lab);
    let page = page();
    let scripts = blocks(&page, "python");
    let again: Vec<String> = codes(&page, "yes").iter().map(i64::to_string).collect();
    let again = format!("if code in ({}):", again.join(", "));
    assert!(scripts.iter().all(|script| script.contains(&again)), "{again}");
    for (script, name) in scripts.iter().zip(["ray", "dask"]) {
        let (to, job) = (format!("@{name}"), lab.path(&format!("{name}-job")));
        lab.haul(&["fleet", "create", "@src", &to, "--shards=8", "--at", job.to_str().unwrap()]).ok();
        let mut script = script.clone();
        for (typed, here) in [
            ("s3:jobs/move-1", job.to_str().unwrap()),
            ("range(16)", "range(4)"),
            ("address=\"auto\"", "num_cpus=16, include_dashboard=False"),
            ("\"scheduler:8786\"", "processes=False, n_workers=4, threads_per_worker=1, dashboard_address=None"),
        ] {
            script = script.replace(typed, here);
        }
        folder::write(&lab.path(&format!("start_{name}.py")), script.as_bytes(), 1);
        let path = format!("{}:/usr/bin:/bin", Path::new(HAUL).parent().unwrap().display());
        let mut started = Command::new(&python);
        started.arg(lab.path(&format!("start_{name}.py"))).env("PATH", path).env("RAY_USAGE_STATS_ENABLED", "0");
        let started = started.env("HOME", lab.path("home")).env("TMPDIR", env::temp_dir()).output().unwrap();
        let stdout = String::from_utf8_lossy(&started.stdout).into_owned();
        // Messages of workers may follow it.
        assert!(
            stdout.lines().any(|line| line == "[0, 0, 0, 0]"),
            "{name}: {stdout}{}",
            String::from_utf8_lossy(&started.stderr)
        );
        folder::assert_same(&folder::read(&lab.path(name)), &folder::read(&lab.path("src")), name);
    }
    assert_eq!(scripts.len(), 2);
}

#[test]
fn kubernetes_starts_workers_as_the_manual_says() {
    let Some(python) = peers::need("schedulers") else { return };
    let page = page();
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let mut parser = Command::new(&python);
    let mut parser = parser.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    parser.stdin.take().unwrap().write_all(blocks(&page, "yaml")[0].as_bytes()).unwrap();
    let parsed = parser.wait_with_output().unwrap();
    let job: Value = serde_json::from_slice(&parsed.stdout).expect("the page's YAML");
    let of = |place: &str| job.pointer(place).unwrap_or_else(|| panic!("{place} of {job}"));
    assert_eq!((of("/apiVersion"), of("/kind")), (&"batch/v1".into(), &"Job".into()));
    assert_eq!(of("/spec/completionMode"), "Indexed");
    assert_eq!(of("/spec/completions"), of("/spec/parallelism"), "all workers at the same time");
    // Kubernetes takes a failure policy, and limits for each index, only with this.
    assert_eq!(of("/spec/template/spec/restartPolicy"), "Never");
    // A worker has its --grace of 20 s, and some more to write down where it is.
    assert!(of("/spec/template/spec/terminationGracePeriodSeconds").as_u64() >= Some(30));
    let fails = of("/spec/podFailurePolicy/rules/1");
    assert_eq!((&fails["action"], &fails["onExitCodes"]["operator"]), (&"FailJob".into(), &"In".into()));
    let ends: BTreeSet<i64> =
        fails["onExitCodes"]["values"].as_array().unwrap().iter().map(|code| code.as_i64().unwrap()).collect();
    let (no, yes) = (codes(&page, "no"), codes(&page, "yes"));
    assert_eq!(ends.iter().chain(&[0]).copied().collect::<BTreeSet<_>>(), no, "the table and the file");
    assert_eq!(yes, BTreeSet::from([1, 5, 130]));

    let lab = Lab::new(HAUL);
    fill(&lab);
    let args = of("/spec/template/spec/containers/0/args").as_array().unwrap();
    let work = |job: &str| -> Vec<String> {
        args.iter().map(|word| word.as_str().unwrap().replace("s3:jobs/move-1", job)).collect()
    };
    let start = |job: &str, index: usize| {
        let words = work(lab.path(job).to_str().unwrap());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut pod = lab.haul_command(&words);
        pod.env("JOB_COMPLETION_INDEX", index.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let create = |src: &str, job: &str| {
        lab.haul(&["fleet", "create", src, "@dst", "--shards=8", "--bwlimit=500k", "--at", job]).ok();
    };
    create("@src", "@job");
    let pods: Vec<_> = (0..3).map(|index| start("job", index)).collect();
    pods.into_iter().for_each(|pod| drop(lab.end(pod).code(0)));
    folder::assert_same(&folder::read(&lab.path("dst")), &folder::read(&lab.path("src")), "Kubernetes");
    // What ends the whole job, and what starts a pod again.
    let ended = |job: &str| i64::from(lab.end(start(job, 0)).code);
    let mut met = BTreeSet::from([ended("none")]);
    for n in 0..300 {
        folder::write(&lab.path(&format!("many/{n:03}")), &[1; 20_000], n);
    }
    create("@many", "@cancelled");
    let pod = start("cancelled", 0);
    assert!(until(|| lab.path("dst/010").exists()));
    signal(&pod, "TERM");
    let stopped = i64::from(lab.end(pod).code);
    assert!(stopped == 130 && yes.contains(&stopped), "{stopped}");
    lab.haul(&["fleet", "cancel", "@cancelled"]).ok();
    met.insert(ended("cancelled"));
    create("@src", "@other");
    fs::rename(lab.path("src"), lab.path("was")).unwrap();
    fs::create_dir(lab.path("src")).unwrap();
    met.insert(ended("other"));
    met.insert(i64::from(lab.haul(&["fleet", "work", "@other", "--no-such-flag"]).code));
    assert!(met.is_subset(&ends) && met.len() == 4, "{met:?} of {ends:?}");
}

#[test]
fn a_list_of_hosts_has_workers_as_the_manual_says() {
    let lab = Lab::new(HAUL);
    let state = format!("SetEnv XDG_STATE_HOME={}", lab.path("state").display());
    let Some(sshd) = Sshd::start(&Setup { lines: vec![state], ..Setup::default() }) else { return };
    fill(&lab);
    let page = page();
    let script = blocks(&page, "sh").into_iter().find(|block| block.starts_with("for host in ")).expect("on the page");
    // Three names of one server.
    let config = fs::read_to_string(sshd.config()).unwrap();
    let config = config.replacen("Host far\n", "Host node1 node2 node3\n HostKeyAlias far\n", 1);
    folder::write(&lab.path("config"), config.as_bytes(), 1);
    let ssh = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", lab.path("config").display());
    folder::write(&lab.path("bin/ssh"), ssh.as_bytes(), 1);
    fs::set_permissions(lab.path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    lab.haul(&["fleet", "create", "@src", "@dst", "--shards=8", "--at", "@job"]).ok();
    let script =
        script.replace("/shared/jobs/run42", lab.path("job").to_str().unwrap()).replace("haul ", &format!("{HAUL} "));
    let path = format!("{}:{}", lab.path("bin").display(), env::var("PATH").unwrap());
    let mut shell = lab.command(Path::new("sh"));
    let ran = shell.args(["-c", &script]).env("PATH", path).output().unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{stdout} {}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(stdout.matches("Complete: ").count(), 4, "three workers and the report: {stdout}");
    assert_eq!(sshd.logins(), 3);
    folder::assert_same(&folder::read(&lab.path("dst")), &folder::read(&lab.path("src")), "hosts");
}
