//! Content over TCP, as a store sees it: what still goes over the first pipe is counted.

use crate::stage;
use bytes::Bytes;
use futures::future::BoxFuture;
use haul_core::{Key, Result};
use haul_far::{Call, Dial, Pipe, Settings};
use haul_store::{LateFacts, OpenRequest, Payload, Store, WriteSpec};
use haul_testkit::folder::noise;
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter, duplex, split};

const MIB: usize = 1 << 20;

/// Serves each connection from this process, and counts what passes in both directions.
struct Counted(Settings, Arc<AtomicU64>);

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counted")
    }
}

impl Dial for Counted {
    fn dial(&self) -> BoxFuture<'_, Result<Call>> {
        let settings = self.0.clone();
        let ((near, far), (there, back)) = (duplex(MIB), duplex(MIB));
        tokio::spawn(async move {
            let (from, to) = split(back);
            haul_far::serve(BufReader::new(from), BufWriter::new(to), settings).await
        });
        let ((mut up, mut down_to), (mut down, mut up_to)) = (split(far), split(there));
        let (ups, downs) = (self.1.clone(), self.1.clone());
        let carry = async |from: &mut (dyn tokio::io::AsyncRead + Send + Unpin),
                           to: &mut (dyn tokio::io::AsyncWrite + Send + Unpin),
                           count: Arc<AtomicU64>| {
            let mut block = vec![0; 64 << 10];
            while let Ok(got @ 1..) = from.read(&mut block).await {
                count.fetch_add(got as u64, Ordering::Relaxed);
                if to.write_all(&block[..got]).await.is_err() {
                    break;
                }
            }
            let _ = to.shutdown().await;
        };
        tokio::spawn(async move { carry(&mut up, &mut up_to, ups).await });
        tokio::spawn(async move { carry(&mut down, &mut down_to, downs).await });
        let (input, output) = split(near);
        let pipe = Pipe { input: Box::new(BufReader::new(input)), output: Box::new(BufWriter::new(output)), end: None };
        Box::pin(std::future::ready(Ok(Call::Pipes(pipe))))
    }
}

/// A store on a folder, and the bytes that went over its first pipe.
fn open(folder: &Path, settings: Settings) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let count = Arc::<AtomicU64>::default();
    let options = [("tcp".to_owned(), "auto".to_owned())].into();
    let request = OpenRequest { options, ..stage::request(folder.as_os_str().as_encoded_bytes()) };
    let dial = Arc::new(Counted(settings, count.clone()));
    (haul_far::open_on(&request, dial, "far counted").unwrap(), count)
}

async fn put(store: &dyn Store, key: &str, bytes: &Bytes) {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let mut parts = Vec::new();
    for (index, offset) in (0..bytes.len()).step_by(8 * MIB).enumerate() {
        let piece = bytes.slice(offset..bytes.len().min(offset + 8 * MIB));
        parts.push(upload.part(index as u64, offset as u64, Payload::from(piece)).await.unwrap());
    }
    upload.publish(parts, LateFacts::default()).await.unwrap();
}

async fn read(store: &dyn Store, key: &str) -> Vec<u8> {
    use futures::TryStreamExt as _;
    let read = store.read(&Key::new(key), None, None).await.unwrap();
    let haul_store::Body::Stream(stream) = read.body else { panic!("a stream") };
    stream.try_collect::<Vec<_>>().await.unwrap().concat()
}

/// What a small file and then a large one, there and back, put on the first pipe, when small ones no longer go by it if `settles`.
async fn moved(store: &dyn Store, count: &AtomicU64, settles: bool) -> u64 {
    let small = Bytes::from(noise(1, 256 << 10));
    loop {
        let before = count.load(Ordering::Relaxed);
        put(store, "small", &small).await;
        if !settles || count.load(Ordering::Relaxed) - before < small.len() as u64 {
            break;
        }
    }
    let before = count.load(Ordering::Relaxed);
    let large = Bytes::from(noise(2, 40 * MIB));
    put(store, "large", &large).await;
    assert!(read(store, "large").await == large);
    count.load(Ordering::Relaxed) - before
}

#[tokio::test(flavor = "multi_thread")]
async fn content_goes_by_tcp_where_both_ends_want_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, count) = open(folder.path(), stage::settings());
    let over = moved(&*store, &count, true).await;
    assert!(over < MIB as u64, "{over} bytes went over the first pipe");
    assert_eq!(fs::metadata(folder.path().join("large")).unwrap().len(), 40 * MIB as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_opens_no_port_is_served_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (store, count) = open(folder.path(), Settings { listens: None, ..stage::settings() });
    let over = moved(&*store, &count, false).await;
    assert!(over > 80 * MIB as u64, "{over} bytes went over the first pipe");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_that_nobody_can_mean_are_refused() {
    let options = [("tcp".to_owned(), "yes".to_owned())].into();
    let request = OpenRequest { options, ..stage::request(b".") };
    let dial = Arc::new(Counted(stage::settings(), Arc::default()));
    let error = haul_far::open_on(&request, dial, "far refused").map(drop).unwrap_err();
    let expected = "far: tcp = \"yes\": use auto, a port, or the first and the last such as 50000-50100";
    assert_eq!(error.message(), expected);
}
