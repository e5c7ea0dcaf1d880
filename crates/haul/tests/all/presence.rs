//! Looking for keys in a store that lists in pages: every answer against the truth, and what it costs in requests.

use bytes::Bytes;
use haul::presence::{KeyState, LookupOptions, LookupResult, find};
use haul_core::{
    ErrorKind, Key, Retry,
    presence::{ChoiceReason, Method},
};
use haul_mem::MemStore;
use haul_store::{LateFacts, Payload, Store, WriteSpec};
use haul_testkit::faults::{Fault, Faulty, Op};
use std::{collections::BTreeSet, sync::Arc};

/// A store in memory that says that it lists in pages of so many keys.
async fn store(page: usize, keys: impl IntoIterator<Item = String>) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(page)));
    for key in keys {
        let spec = WriteSpec { size: Some(0), ..WriteSpec::default() };
        let upload = store.write(&Key::new(key), spec).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::new())).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
    }
    store
}

/// Names that are spread evenly, as hashes are: number `n` of the sequence of `seed`.
fn name(seed: u64, n: u64) -> String {
    let mut z = (seed << 32 ^ n).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    format!("files/md5/{:02x}/{:014x}", z >> 56, z & (u64::MAX >> 8))
}

#[track_caller]
fn assert_true(found: &LookupResult, there: &BTreeSet<String>, wanted: &[Key]) {
    assert_eq!(found.answers.iter().map(|(key, _)| key).collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    for (key, answer) in &found.answers {
        match answer {
            KeyState::There(entry) => assert!(entry.key == *key && there.contains(&*key.display()), "{key}"),
            KeyState::Absent => assert!(!there.contains(&*key.display()), "{key} is there"),
            other => panic!("{key}: {other:?}"),
        }
    }
}

fn keys(names: impl IntoIterator<Item = String>) -> Vec<Key> {
    let mut keys: Vec<Key> = names.into_iter().map(Key::new).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn every_answer_is_true_by_every_way() {
    for (stored, known, new) in
        [(0, 0, 40), (40, 10, 5), (2_000, 300, 30), (2_000, 15, 15), (2_000, 2_000, 1), (500, 3, 200)]
    {
        let there: BTreeSet<String> = (0..stored).map(|n| name(1, n)).collect();
        let wanted = keys((0..known).map(|n| name(1, n)).chain((0..new).map(|n| name(2, n))));
        let store = store(20, there.clone()).await;
        for method in [None, Some(Method::Ask), Some(Method::Leap)] {
            for at_once in [None, Some(1), Some(7)] {
                let found = find(&store, wanted.clone(), LookupOptions { method, at_once }).await;
                assert_true(&found, &there, &wanted);
                let most = match found.choice.method {
                    Method::Ask => wanted.len() as u64 + 2,
                    _ => (stored / 20 * 5 / 4 + 3).min(wanted.len() as u64 + 2),
                };
                assert!(found.requests <= most, "{stored} {known} {new} {method:?}: {} of {most}", found.requests);
            }
        }
    }
}

#[tokio::test]
async fn awkward_names_are_found() {
    let names = ["a", "a ", "a!", "a/", "a//b", "a0", "a~", "a~~", "é", "\u{1F69A}", "~", " ", "\n"];
    let there: BTreeSet<String> = names.iter().step_by(2).map(|n| n.to_string()).collect();
    let wanted = keys(names.iter().filter(|n| !n.ends_with('/')).map(|n| n.to_string()));
    let store = store(2, there.clone()).await;
    for method in [Method::Ask, Method::Leap] {
        let found = find(&store, wanted.clone(), LookupOptions { method: Some(method), at_once: None }).await;
        assert_true(&found, &there, &wanted);
    }
}

#[tokio::test]
async fn a_few_keys_and_an_empty_store_cost_one_request() {
    let there: BTreeSet<String> = (0..3_000).map(|n| name(1, n)).collect();
    let full = store(10, there.clone()).await;
    let found = find(&full, keys([name(2, 0)]), LookupOptions::default()).await;
    assert_eq!((found.requests, found.choice.why), (1, ChoiceReason::Few(1)));
    let empty = store(10, []).await;
    let found = find(&empty, keys((0..5_000).map(|n| name(2, n))), LookupOptions::default()).await;
    assert_eq!((found.requests, found.choice.why), (1, ChoiceReason::SeenWhole));
    assert!(found.answers.iter().all(|(_, answer)| matches!(answer, KeyState::Absent)) && found.answers.len() == 5_000);
}

#[tokio::test]
async fn a_page_that_fails_is_asked_for_key_by_key() {
    let there: BTreeSet<String> = (0..1_000).map(|n| name(1, n)).collect();
    let wanted = keys((0..400).map(|n| name(1, n)).chain((0..50).map(|n| name(2, n))));
    let whole = store(20, there.clone()).await;
    for fault in [Fault::Fail(ErrorKind::Denied, Retry::Never), Fault::Break(7), Fault::Cut(7)] {
        for nth in [1, 2, 9] {
            let store: Arc<dyn Store> = Arc::new(Faulty::new(whole.clone()).on(Op::List, nth, fault.clone()));
            assert_true(&find(&store, wanted.clone(), LookupOptions::default()).await, &there, &wanted);
        }
    }
    let fails = Fault::Fail(ErrorKind::Io, Retry::Never);
    let broken = Faulty::new(whole).on(Op::List, 1, fails.clone()).on(Op::List, 2, fails);
    let store: Arc<dyn Store> = Arc::new(broken.on(Op::Stat, 5, Fault::Fail(ErrorKind::Io, Retry::Never)));
    let found = find(&store, wanted, LookupOptions { at_once: Some(1), ..LookupOptions::default() }).await;
    let unknown: Vec<usize> =
        (0..found.answers.len()).filter(|n| matches!(found.answers[*n].1, KeyState::Unknown(_))).collect();
    assert_eq!(unknown, [4], "an error is no absence");
}
