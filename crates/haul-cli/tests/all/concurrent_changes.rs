//! Changes by others to source, destination and partial files during a run lose nothing.

use haul_core::{
    Algo,
    hash::{hash_bytes, to_hex},
};
use haul_testkit::{
    cloudsim::{Cloudsim, ObjectSpec},
    folder::{noise, write},
    lab::{Lab, elsewhere, until},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;

/// A cloud of this many bytes a second in all, and a lab with a remote of it.
fn cloud(rate: &str) -> (Lab, Cloudsim) {
    let sim = Cloudsim::with(&[("rate-in", rate), ("rate-out", rate)]);
    sim.bucket("b", None);
    let lab = Lab::new(HAUL);
    lab.remote("c", &sim.endpoint());
    (lab, sim)
}

fn made(size: u64, seed: u64) -> ObjectSpec {
    ObjectSpec { size, seed, mtime: Some("1600000000".into()), md5: false }
}

/// Sends a request without a body, and gives the answer.
fn ask(sim: &Cloudsim, request: &str) -> String {
    let mut stream = TcpStream::connect(sim.address()).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nhost: c\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The hidden file that a download is written to.
fn partial(lab: &Lab) -> Option<PathBuf> {
    let mut found = fs::read_dir(lab.path("dst")).ok()?.map(|entry| entry.unwrap().path());
    found.find(|path| path.extension().is_some_and(|end| end == "partial"))
}

/// What is in the destination, but for `big` itself.
fn others(lab: &Lab) -> usize {
    fs::read_dir(lab.path("dst")).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != "big").count()
}

#[test]
fn what_was_stored_over_a_moved_key_since_it_was_copied_stays() {
    let (lab, sim) = cloud("8M");
    sim.make("b", b"x/a", &made(1000, 1));
    sim.make("b", b"x/big", &made(30 * MIB, 2));
    let child = lab.start(&["move", "c:b/x", "@dst"]);
    assert!(until(|| lab.path("dst/a").exists()));
    sim.make("b", b"x/a", &made(1000, 3));
    let newer = sim.get("b", b"x/a").unwrap().bytes;
    let ran = lab.end(child).code(1);
    assert!(ran.err.contains("ERROR : x/a: ") || ran.err.contains("ERROR : a: "), "{}", ran.err);
    assert!(ran.err.contains("changed since it was copied: it stays"), "{}", ran.err);
    assert_eq!(sim.keys("b"), [b"x/a"]);
    assert!(sim.get("b", b"x/a").unwrap().bytes == newer);
    lab.haul(&["move", "c:b/x", "@dst", "--ignore-times"]).ok();
    assert!(fs::read(lab.path("dst/a")).unwrap() == newer);
    assert!(sim.keys("b").is_empty());
    // The question is one for all of them.
    (0..300).for_each(|n| sim.make("b", format!("y/{n}").as_bytes(), &made(10, n)));
    sim.reset();
    let ran = lab.haul(&["move", "c:b/y", "@dst", "-v"]).ok();
    assert!(ran.err.contains("Deleted:              300 (files), 0 (dirs), 2.930 KiB (freed)"), "{}", ran.err);
    let report = sim.report();
    assert!(report.of("ListObjectsV2") + report.of("HeadObject") <= 4, "{:?}", report.requests);
}

#[test]
fn an_upload_that_somebody_aborts_begins_again() {
    let (lab, sim) = cloud("10M");
    let bytes = noise(1, 40 * MIB as usize);
    write(&lab.path("src/big"), &bytes, TIME);
    let child =
        lab.start(&["copy", "@src", "c:b", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi", "--transfers=1"]);
    assert!(until(|| sim.report().bytes_in >= 10 * MIB));
    let listed = ask(&sim, "GET /b?uploads");
    let id = listed.split("<UploadId>").nth(1).and_then(|rest| rest.split('<').next()).expect("an upload");
    ask(&sim, &format!("DELETE /b/big?uploadId={id}"));
    let ran = lab.end(child).ok();
    assert!(!ran.err.contains("ERROR"), "{}", ran.err);
    assert!(sim.get("b", b"big").unwrap().bytes == bytes);
    assert_eq!(sim.report().unfinished_uploads, 0);
}

#[test]
fn a_partial_file_that_somebody_removes_or_replaces_begins_again() {
    let (lab, sim) = cloud("8M");
    sim.make("b", b"big", &made(20 * MIB, 1));
    let bytes = sim.get("b", b"big").unwrap().bytes;
    for replaced in [false, true] {
        let child = lab.start(&["copy", "c:b", "@dst"]);
        assert!(until(|| partial(&lab).is_some()));
        let path = partial(&lab).unwrap();
        fs::remove_file(&path).unwrap();
        if replaced {
            fs::write(&path, b"something else").unwrap();
        }
        lab.end(child).ok();
        assert!(fs::read(lab.path("dst/big")).unwrap() == bytes, "replaced: {replaced}");
        assert_eq!(others(&lab), 0);
        fs::remove_dir_all(lab.path("dst")).unwrap();
    }
    // Written in place, and removed: it must not count as there, or a move would delete the source.
    let child = lab.start(&["move", "c:b", "@dst", "--inplace"]);
    assert!(until(|| lab.path("dst/big").exists()));
    fs::remove_file(lab.path("dst/big")).unwrap();
    lab.end(child).ok();
    assert!(fs::read(lab.path("dst/big")).unwrap() == bytes);
}

/// A file in `folder` whose every byte is the number of the last write, which a thread writes over and over again until this is dropped.
/// A write sets the time as it begins. While it stands still in its midst, as the kernel may let it on a busy machine, the file is what it is
/// then and stays so, with no new time: nobody can know. So such a state counts as one that the file was in, and a pause after each write
/// keeps them rare: whoever gives way leaves off there.
struct Rewritten {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    writer: Option<thread::JoinHandle<()>>,
}

impl Rewritten {
    const SIZE: usize = 1_000_000;
    const NUMBERS: u8 = 16;
    const PAUSE: Duration = Duration::from_micros(50);

    fn in_folder(folder: &Path) -> Rewritten {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join("f");
        fs::write(&path, vec![1; Self::SIZE]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (file, ended) = (fs::File::options().write(true).open(&path).unwrap(), stop.clone());
        let writer = thread::spawn(move || {
            for number in (1..=Self::NUMBERS).cycle() {
                if ended.load(Relaxed) {
                    return;
                }
                file.write_all_at(&vec![number; Self::SIZE], 0).unwrap();
                thread::sleep(Self::PAUSE);
            }
        });
        Rewritten { path, stop, writer: Some(writer) }
    }

    fn md5(bytes: &[u8]) -> String {
        to_hex(hash_bytes(&[Algo::Md5], bytes).get(Algo::Md5).unwrap())
    }

    /// The number that is written over this one.
    fn next(number: u8) -> u8 {
        number % Self::NUMBERS + 1
    }

    /// The MD5 of each state between two writes.
    fn md5s() -> Vec<String> {
        (1..=Self::NUMBERS).map(|number| Self::md5(&vec![number; Self::SIZE])).collect()
    }

    /// Whether `text` has the MD5 of a state in the midst of a write, after so many whole pages.
    fn has_md5_of_half(text: &str) -> bool {
        const PAGE: usize = 4096;
        (1..=Self::NUMBERS).any(|old| {
            let mut bytes = vec![old; Self::SIZE];
            (0..Self::SIZE / PAGE).any(|page| {
                bytes[page * PAGE..][..PAGE].fill(Self::next(old));
                text.contains(&Self::md5(&bytes))
            })
        })
    }

    /// Whether it was never so.
    fn is_torn(bytes: &[u8]) -> bool {
        let Some(old) = bytes.last().copied() else { return true };
        let written = bytes.iter().take_while(|byte| **byte == Self::next(old)).count();
        bytes.len() != Self::SIZE || bytes[written..].iter().any(|byte| *byte != old)
    }
}

impl Drop for Rewritten {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.writer.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_file_that_is_written_all_the_time_is_copied_whole_or_reported() {
    let (lab, sim) = cloud("1G");
    let elsewhere = elsewhere();
    for folder in [Some(lab.path("src")), elsewhere.as_ref().map(|dir| dir.path().join("src"))].into_iter().flatten() {
        let src = format!("{}/", folder.display());
        let small = ["--multi-thread-cutoff", "100k", "--s3-upload-cutoff", "100k"];
        let runs: [(&[&str], &str); 4] = [
            (&["copy", &src, "@dst"], "the disk"),
            // rsync goes by whole seconds, in which there are many generations.
            (&["rsync", "-aI", &src, "@dst"], "the disk"),
            (&["copy", &src, "c:b/x"], "the cloud"),
            (&["copy", &src, "c:b/x", small[0], small[1], small[2], small[3]], "the cloud"),
        ];
        for (args, place) in runs {
            let arrived = || match place {
                "the disk" => fs::read(lab.path("dst/f")).ok(),
                _ => sim.get("b", b"x/f").map(|stored| stored.bytes.to_vec()),
            };
            let rewritten = Rewritten::in_folder(&folder);
            for _ in 0..4 {
                let ran = lab.haul(args);
                let arrived = arrived();
                assert!(!arrived.as_deref().is_some_and(Rewritten::is_torn), "{}: {}", ran.line, ran.err);
                assert!(ran.code == 0 && arrived.is_some() || ran.err.contains("changed"), "{}: {}", ran.line, ran.err);
            }
            let path = rewritten.path.clone();
            drop(rewritten);
            lab.haul(args).ok();
            assert!(arrived() == Some(fs::read(path).unwrap()), "{args:?}");
        }
    }
}

#[test]
fn what_is_hashed_of_such_a_file_is_one_state_of_it() {
    let (lab, md5s) = (Lab::new(HAUL), Rewritten::md5s());
    let repo = lab.path("r");
    fs::create_dir_all(repo.join(".dvc")).unwrap();
    fs::write(repo.join(".dvc/config"), "[core]\n    no_scm = true\n").unwrap();
    let _rewritten = Rewritten::in_folder(&repo.join("data"));
    let run = |args: &[&str]| {
        let output = lab.haul_command(args).current_dir(&repo).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let good = |out: &str| md5s.iter().any(|md5| out.contains(md5)) || Rewritten::has_md5_of_half(out);
    for _ in 0..5 {
        let (code, out, err) = run(&["hashsum", "md5", "data"]);
        assert!(code == Some(0) && good(&out) || err.contains("changed"), "{out}\n{err}");
        let (code, _, err) = run(&["dvc", "add", "data/f"]);
        let dvc_file = fs::read_to_string(repo.join("data/f.dvc")).unwrap_or_default();
        assert!(
            code == Some(0) && good(&dvc_file) || err.contains("it changed while it was read"),
            "{dvc_file}\n{err}"
        );
        let (code, _, err) = run(&["snapshot", "push", "data", "../store"]);
        // In the midst of a write its bytes alone tell that they change.
        let explained =
            ["changed", "does not have the md5 that the source says it has"].iter().any(|why| err.contains(why));
        assert!(code == Some(0) || explained, "{err}");
        if code == Some(0) {
            let (_, _, err) = run(&["snapshot", "pull", "../store", "data", "../back"]);
            assert!(!Rewritten::is_torn(&fs::read(lab.path("back/f")).unwrap()), "{err}");
        }
    }
}
