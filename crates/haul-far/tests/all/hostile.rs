//! A far end that means ill: it answers a near end in frames of its own making.

use crate::stage;
use futures::{StreamExt as _, future::BoxFuture};
use haul_core::{Error, ErrorKind, Key, Listed};
use haul_far::{Call, Dial, Pipe};
use haul_store::{Body, ListRequest, Store};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(20);

/// What it writes where question number `id` was asked, frame by frame.
type Answers = fn(u32) -> Vec<Vec<u8>>;

struct Liar(Answers);

impl std::fmt::Debug for Liar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Liar")
    }
}

impl Dial for Liar {
    fn dial(&self) -> BoxFuture<'_, haul_core::Result<Call>> {
        let (near, far) = duplex(1 << 20);
        tokio::spawn(lie(far, self.0));
        let (input, output) = split(near);
        let pipe = Pipe { input: Box::new(input), output: Box::new(output), end: None };
        Box::pin(std::future::ready(Ok(Call::Pipes(pipe))))
    }
}

fn frame(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 5).to_be_bytes()[..], &[kind], &id.to_be_bytes(), body].concat()
}

/// A name and what it holds, as MessagePack has an enum's variant.
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0x81, 0xa0 | name.len() as u8][..], name.as_bytes(), value].concat()
}

async fn lie(mut pipe: DuplexStream, answers: Answers) -> std::io::Result<()> {
    let mut mark = [0; 24];
    pipe.read_exact(&mut mark).await?;
    let mut question = 0;
    loop {
        let mut head = [0; 9];
        pipe.read_exact(&mut head).await?;
        let [a, b, c, d, kind, e, f, g, h] = head;
        let mut body = vec![0; u32::from_be_bytes([a, b, c, d]) as usize - 5];
        pipe.read_exact(&mut body).await?;
        if kind != 1 {
            continue;
        }
        let id = u32::from_be_bytes([e, f, g, h]);
        match question {
            0 => {
                pipe.write_all(&mark).await?;
                let welcome = named("Serves", b"\x82\xa7version\x02\xa5build\xa11");
                pipe.write_all(&frame(2, id, &welcome)).await?;
            }
            1 => pipe.write_all(&frame(2, id, &named("Folder", &[7]))).await?,
            _ => {
                for bytes in answers(id) {
                    pipe.write_all(&bytes).await?;
                }
            }
        }
        question += 1;
    }
}

fn open(answers: Answers) -> Arc<dyn Store> {
    haul_far::open_on(&stage::request(b"/folder"), Arc::new(Liar(answers)), "far liar").unwrap()
}

/// An entry of a file.
fn entry(key: &str, size: u8) -> Vec<u8> {
    let entry = haul_core::Entry::file(Key::new(key), size.into());
    rmp_serde::to_vec_named(&entry).unwrap()
}

fn batch(keys: &[&str]) -> Vec<u8> {
    let entries: Vec<u8> = keys.iter().flat_map(|key| entry(key, 7)).collect();
    named("Batch", &[&[0x90 | keys.len() as u8][..], &entries].concat())
}

async fn list(store: &Arc<dyn Store>, prefix: &str) -> (Vec<String>, Vec<Error>, bool) {
    let (mut keys, mut failed, mut ended) = (Vec::new(), Vec::new(), false);
    let mut listing = store.list(ListRequest { prefix: prefix.into(), ..ListRequest::all() });
    while let Some(listed) = timeout(SOON, listing.next()).await.unwrap() {
        match listed {
            Listed::Batch(entries) => keys.extend(entries.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { error, .. } => failed.push(error),
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    (keys, failed, ended)
}

/// Names in no order, twice, or that were not asked for, prove nothing: the listing is lost from there on, and has no end.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_were_not_asked_for_end_a_listing() {
    const OTHER: &str = "the far end answered something else than what was asked";
    let cases: [(Answers, &str, &[&str]); 3] = [
        (|id| vec![frame(2, id, &batch(&["d/a", "etc/passwd"])), frame(2, id, b"\xa3End")], "d/", &[]),
        (|id| vec![frame(2, id, &batch(&["b"])), frame(2, id, &batch(&["a"])), frame(2, id, b"\xa3End")], "", &["b"]),
        (|id| vec![frame(2, id, &batch(&["a"])), frame(2, id, &batch(&["a"])), frame(2, id, b"\xa3End")], "", &["a"]),
    ];
    for (answers, prefix, seen) in cases {
        let (keys, failed, ended) = list(&open(answers), prefix).await;
        assert_eq!((keys, ended), (seen.iter().map(|key| (*key).to_owned()).collect(), false));
        assert_eq!(failed.iter().map(Error::message).collect::<Vec<_>>(), [OTHER]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_or_talks_nonsense_proves_nothing() {
    let cases: [(Answers, &str); 3] = [
        (|id| vec![frame(2, id, &batch(&["a"])), frame(9, id, b"")], "a frame is of no known kind"),
        (
            |id| vec![frame(2, id, &batch(&["a"])), vec![0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0]],
            "a frame's length is wrong",
        ),
        (|id| vec![frame(2, id, &batch(&["a"])), frame(2, id, b"\xc1garbage")], "doesn't understand"),
    ];
    for (answers, message) in cases {
        let (keys, failed, ended) = list(&open(answers), "").await;
        assert!(keys == ["a"] && !ended && failed.len() == 1, "{message}: {keys:?}");
        assert!(failed[0].message().contains(message), "{message}: {}", failed[0]);
    }
}

/// Content is believed by its checksum alone, whatever size was told.
#[tokio::test(flavor = "multi_thread")]
async fn content_without_its_checksum_is_an_error() {
    let cases: [Answers; 3] = [
        // Another checksum, an end without one, and somebody else's answer.
        |id| {
            vec![
                frame(2, id, &named("Entry", &entry("f", 7))),
                frame(3, id, b"content"),
                frame(2, id, &named("Sent", &[1])),
            ]
        },
        |id| vec![frame(2, id, &named("Entry", &entry("f", 7))), frame(3, id, b"cont"), frame(2, id, b"\xa3End")],
        |id| vec![frame(2, id, &named("Entry", &entry("f", 7))), frame(3, id, b"content"), frame(9, id, b"")],
    ];
    for answers in cases {
        let read = open(answers).read(&Key::new("f"), None, None).await.unwrap();
        let Body::Stream(mut pieces) = read.body else { panic!("a stream") };
        let mut failed = None;
        while let Some(piece) = timeout(SOON, pieces.next()).await.unwrap() {
            failed = piece.err();
        }
        let kind = failed.expect("an error at the end").kind();
        assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Io), "{kind:?}");
    }
}
