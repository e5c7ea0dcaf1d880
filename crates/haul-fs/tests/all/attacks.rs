//! A destination that somebody else works on while haul writes: folders are swapped for links, and nothing may appear, change or
//! vanish outside.

use bytes::Bytes;
use haul_core::{Error, Key, Mtime};
use haul_store::{CopyBatch, CopyHow, CopyItem, LateFacts, Links, Payload, Store, WriteSpec};
use haul_testkit::disk::open;
use rustix::fs::{CWD, RenameFlags};
use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::{TempDir, tempdir};

/// How long each attack goes on: some thousand swaps.
const SPAN: Duration = Duration::from_millis(1500);
/// And how long at most, where the machine is busy with something else.
const MOST: Duration = Duration::from_secs(60);

/// Files in one batch.
const FILES: usize = 8;

/// A source, a destination in which `d` and `d/e` take turns with links to the outside, and the outside.
struct Scene {
    _temp: TempDir,
    src: PathBuf,
    dst: PathBuf,
    outside: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let temp = tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let scene = Scene { src: at("src"), dst: at("dst"), outside: at("outside"), _temp: temp };
        for dir in ["src/d/e", "dst/d/e", "outside/e"] {
            fs::create_dir_all(scene._temp.path().join(dir)).unwrap();
        }
        for number in 0..FILES {
            fs::write(scene.src.join(format!("d/e/f{number}")), format!("new {number}")).unwrap();
            // Files outside with the same names, so that any write or delete that reaches them is noticed.
            fs::write(scene.outside.join(format!("e/f{number}")), "precious").unwrap();
            fs::write(scene.outside.join(format!("f{number}")), "precious").unwrap();
        }
        for dir in ["e", "."] {
            let dir = fs::File::open(scene.outside.join(dir)).unwrap();
            dir.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        }
        symlink(&scene.outside, scene.dst.join("link-d")).unwrap();
        symlink(scene.outside.join("e"), scene.dst.join("link-e")).unwrap();
        scene
    }

    /// All that the outside holds: names, contents, times.
    fn outside(&self) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let mut found = Vec::new();
        for dir in [self.outside.clone(), self.outside.join("e")] {
            found.push((dir.clone(), Vec::new(), fs::metadata(&dir).unwrap().modified().unwrap()));
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let bytes = if path.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
                found.push((path.clone(), bytes, fs::metadata(&path).unwrap().modified().unwrap()));
            }
        }
        found.sort();
        found
    }

    /// Swaps folders of the destination for links and back, at once each time, until `stop`.
    fn swap(&self, stop: Arc<AtomicBool>, swaps: Arc<AtomicU64>) -> thread::JoinHandle<()> {
        let dst = self.dst.clone();
        thread::spawn(move || {
            let exchange =
                |a: &str, b: &str| rustix::fs::renameat_with(CWD, dst.join(a), CWD, dst.join(b), RenameFlags::EXCHANGE);
            while !stop.load(Ordering::Relaxed) {
                for (dir, link) in [("d", "link-d"), ("d/e", "link-e")] {
                    // A folder that is being made again may be missing for a moment.
                    let there = exchange(dir, link);
                    thread::yield_now();
                    let back = exchange(dir, link);
                    swaps.fetch_add(u64::from(there.is_ok() && back.is_ok()), Ordering::Relaxed);
                }
            }
        })
    }

    /// Runs `attempt` again and again while folders are swapped; what it could do doesn't matter, only where.
    async fn attacked(
        &self,
        what: &str,
        mut attempt: impl AsyncFnMut(&Arc<dyn Store>, usize) -> Vec<Result<(), Error>>,
    ) {
        let before = self.outside();
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let swapper = self.swap(stop.clone(), swaps.clone());
        let (begun, mut done, mut refused, mut round) = (Instant::now(), 0, 0, 0);
        let enough = |done: u64| swaps.load(Ordering::Relaxed) > 20 && done > 0;
        while begun.elapsed() < SPAN || (!enough(done) && begun.elapsed() < MOST) {
            // Opened anew, so that no descriptor of an earlier round makes it easy.
            let store = open(&self.dst, Links::Skip);
            for answer in attempt(&store, round).await {
                *if answer.is_ok() { &mut done } else { &mut refused } += 1;
            }
            round += 1;
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        assert!(enough(done), "{what}: {swaps:?} swaps, {done} done, {refused} refused");
        assert_eq!(self.outside(), before, "{what} reached the outside");
    }
}

fn key(number: usize) -> Key {
    Key::new(format!("d/e/f{number}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_becomes_a_link_leads_no_copy_out() {
    let scene = Scene::new();
    let src = open(&scene.src, Links::Skip);
    let from = src.caps().domain.clone().unwrap().place;
    scene
        .attacked("copy", async |store, _| {
            let item = |number| CopyItem {
                from: key(number),
                want: None,
                size: 5,
                to: key(number),
                spec: WriteSpec::default(),
                how: CopyHow::Copy,
            };
            let items = (0..FILES).map(item).collect();
            let answers = store
                .copy(CopyBatch { from: from.clone(), items, links: Default::default() }, Default::default())
                .await;
            answers.into_iter().map(|answer| answer.map(drop)).collect()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_becomes_a_link_leads_no_upload_out() {
    let scene = Scene::new();
    let put = async |store: &Arc<dyn Store>, key: Key| -> Result<(), Error> {
        let upload = store.write(&key, WriteSpec { size: Some(3), ..WriteSpec::default() }).await?;
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await?;
        upload.publish(vec![part], LateFacts::default()).await.map(drop).map_err(Error::from)
    };
    scene.attacked("write", async |store, round| vec![put(store, key(round % FILES)).await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_becomes_a_link_leads_no_change_or_deletion_out() {
    let scene = Scene::new();
    scene
        .attacked("change", async |store, round| {
            let key = key(round % FILES);
            let made = store.make_dir(&Key::new(format!("d/e/dir{}/", round % 4)), &WriteSpec::default()).await;
            let time = Some(Mtime::new(1_500_000_000, 0));
            let touched = store.set_meta(&key, time, None).await;
            let folder = store.set_meta(&Key::new("d/e/"), time, None).await;
            let deleted = store.delete(vec![(key, None)]).await.into_iter().collect::<Result<(), _>>();
            vec![made, touched, folder, deleted]
        })
        .await;
}
