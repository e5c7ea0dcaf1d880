use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Result of a listing in ranges.
#[derive(Debug)]
struct Run {
    listed: Vec<Key>,
    lost: Vec<MissedRange>,
    requests: usize,
    /// Round trips, if each page takes one.
    rounds: usize,
    /// Most pages that waited.
    held: usize,
}

/// Lists `keys` in pages; `order` says which of the pages under way comes next, `fails` which requests fail.
fn run(keys: &[Key], page: usize, width: usize, order: impl FnMut(usize) -> usize, fails: &[usize]) -> Run {
    run_in(keys, (page, WINDOW), width, order, fails)
}

/// The same where only so many entries may wait.
fn run_in(
    keys: &[Key],
    (page, waiting): (usize, usize),
    width: usize,
    mut order: impl FnMut(usize) -> usize,
    fails: &[usize],
) -> Run {
    let entries: Vec<Entry> = keys.iter().map(|key| Entry::file(key.clone(), 1)).collect();
    let mut ranges = Ranges::new(None, None, page, waiting);
    let mut under_way: Vec<(PageRequest, usize)> = Vec::new();
    let mut waiting: BTreeMap<u64, VecDeque<Vec<Key>>> = BTreeMap::new();
    let mut lost_by: BTreeMap<u64, MissedRange> = BTreeMap::new();
    let mut run = Run { listed: Vec::new(), lost: Vec::new(), requests: 0, rounds: 0, held: 0 };
    loop {
        while let Some((number, over)) = ranges.first() {
            if let Some(batch) = waiting.get_mut(&number).and_then(VecDeque::pop_front) {
                run.listed.extend(batch);
                ranges.gave();
            } else if over {
                run.lost.extend(lost_by.remove(&number));
                ranges.pass();
            } else {
                break;
            }
        }
        if ranges.first().is_none() {
            assert!(under_way.len() < width.max(2), "those that are left are of no use: {under_way:?}");
            return run;
        }
        if let Some(dir) = ranges.wants_folders() {
            run.requests += 1;
            let below = keys.iter().filter_map(|key| key.as_bytes().strip_prefix(dir.as_bytes()));
            let ends = below.filter_map(|key| Some(&key[..=key.iter().position(|byte| *byte == b'/')?]));
            let mut folders: Vec<Key> = ends.map(|folder| Key::new([dir.as_bytes(), folder].concat())).collect();
            folders.dedup();
            let ended = folders.len() <= page;
            folders.truncate(page);
            ranges.has_folders(folders, ended);
        }
        while let Some(ask) = ranges.next(width) {
            run.requests += 1;
            under_way.push((ask, run.requests));
        }
        assert!(!under_way.is_empty() && under_way.len() <= width.max(1));
        let mut came = vec![under_way.swap_remove(order(under_way.len()) % under_way.len())];
        if width > 1 && order(3) != 0 {
            // All that are under way come in one round.
            came.append(&mut under_way);
        }
        run.rounds += 1;
        for (ask, number) in came {
            if fails.contains(&number) {
                lost_by.extend(ranges.failed(ask.range).map(|lost| (ask.range, lost)));
                continue;
            }
            let from = ask.after.map_or(0, |after| keys.partition_point(|key| *key <= after));
            let to = (from + page).min(keys.len());
            let keep = ranges.took(ask.range, &entries[from..to], to == keys.len());
            if keep > 0 {
                waiting.entry(ask.range).or_default().push_back(keys[from..from + keep].to_vec());
            }
        }
        run.held = run.held.max(waiting.values().map(VecDeque::len).sum());
    }
}

fn sorted(names: impl IntoIterator<Item = String>) -> Vec<Key> {
    let names: BTreeSet<String> = names.into_iter().collect();
    names.into_iter().map(Key::new).collect()
}

fn hash(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

/// Buckets as people have them.
fn shapes(keys: u64) -> Vec<(&'static str, Vec<Key>)> {
    let words = ["alpha", "beta", "gamma", "delta", "report", "image", "x", "yonder", "zeta", "data-2024"];
    let word = |n: u64| words[(hash(n) % 10) as usize];
    vec![
        ("counted", sorted((0..keys).map(|n| format!("file-{n:08}.bin")))),
        ("unpadded", sorted((0..keys).map(|n| format!("img{n}.jpg")))),
        (
            "hashes",
            sorted((0..keys).map(|n| format!("files/md5/{:02x}/{:014x}", hash(n) >> 56, hash(n) & (u64::MAX >> 8)))),
        ),
        (
            "tree",
            sorted((0..keys).map(|n| {
                format!("d{:05}/d{:02}/d{:02}/file-{:02}.bin", n / 102_400, n / 3_200 % 32, n / 100 % 32, n % 100)
            })),
        ),
        (
            "words",
            sorted((0..keys).map(|n| format!("{}/{}/{}/{}-{n}", word(n), word(n / 7), word(n / 1_000), word(n + 1)))),
        ),
        (
            "one folder is all",
            sorted(
                (0..keys).map(|n| {
                    if n % 100 == 0 { format!("{}/{n}", word(n)) } else { format!("logs/2024/{:07}", n * 37) }
                }),
            ),
        ),
        (
            "dates",
            sorted((0..keys).map(|n| {
                format!("2024/{:02}/{:02}/{:016x}.parquet", n * 12 / keys + 1, n * 336 / keys % 28 + 1, hash(n))
            })),
        ),
        // A page that ends where a folder does, or nearly so, gives no hint of how far the next folder is.
        ("folders of a page", sorted((0..keys).map(|n| format!("{:04}/{n:09}", n / 1_000)))),
        ("counted in folders of a page", sorted((0..keys).map(|n| format!("{:05}/{:04}", n / 1_000, n % 1_000)))),
        ("folders of nearly a page", sorted((0..keys).map(|n| format!("{:04}/{n:09}", n / 930)))),
        ("folders of a little more", sorted((0..keys).map(|n| format!("{:04}/{n:09}", n / 1_070)))),
        ("folders of two pages and more", sorted((0..keys).map(|n| format!("{:04}/{n:09}", n / 2_400)))),
        (
            "folders whose names begin alike",
            sorted(
                (0..keys).map(|n| format!("data{}/{n:09}", ["", "-1", "-2", ".old", " x"][(n * 5 / keys) as usize])),
            ),
        ),
        ("small folders", sorted((0..keys).map(|n| format!("{:05}/{n:09}", n / 130)))),
        ("long alike", sorted((0..keys).map(|n| format!("{}{:x}", "a".repeat(150), hash(n))))),
        (
            "other scripts",
            sorted((0..keys).map(|n| format!("écriture/{}/{n}", ["ü", "日本", "ß", "e\u{301}"][(n % 4) as usize]))),
        ),
    ]
}

#[test]
fn every_shape_whole_frugal_and_faster() {
    let mut bad = Vec::new();
    for (keys, faster) in
        [(300_000u64, 3.0), (50_000, 1.0), (10_000, 1.0), (9_000, 1.0), (1_000, 1.0), (999, 1.0), (1, 1.0), (0, 1.0)]
    {
        for (name, all) in shapes(keys) {
            let run = run(&all, 1_000, 64, |_| 1, &[]);
            assert!(run.listed == all, "{name}, {keys} keys: not the same");
            assert_eq!(run.lost, []);
            let least = all.len().div_ceil(1_000).max(1);
            if run.requests as f64 > 1.1 * least as f64 + 0.5 {
                bad.push(format!("{name}, {keys} keys: {} requests for {least} pages", run.requests));
            }
            let speed = least as f64 / run.rounds as f64;
            // The first page of hashes says how many there are.
            let least = match name {
                "hashes" if keys >= 50_000 => 1.3 * faster + 0.5,
                "counted" | "counted in folders of a page" | "small folders" | "tree" | "hashes" => faster,
                _ => 1.0,
            };
            if speed < least {
                bad.push(format!("{name}, {keys} keys: {speed:.1} times as fast"));
            }
            assert!(run.held <= WINDOW / 1_000 + 64, "{name}: {} pages held", run.held);
        }
    }
    assert_eq!(bad, [""; 0]);
}

/// Each cut costs nearly a page there, which shows only when the first ranges end: many that were cut before that would have to be earned
/// by hundreds of pages, one after the other. Once it shows, the folders' names are asked for, and cuts lie between them.
#[test]
fn cuts_that_cost_a_page_each_are_not_made_by_the_dozen_before_that_shows() {
    let all = sorted((0..1_000_000u64).map(|n| format!("{:04}/{n:09}", n / 1_000)));
    let run = run(&all, 998, 64, |_| 1, &[]);
    assert!(run.listed == all);
    assert!(run.requests <= 1_103 && run.rounds <= 125, "{} requests in {} rounds", run.requests, run.rounds);
}

/// Where a page holds several folders, their number is asked for early, and ranges of whole folders end just before a page does: so they
/// may be short, and many of them fit into what may wait.
#[test]
fn small_folders_are_counted_early_and_fill_pages() {
    for (of_folder, page, rounds) in [(1_000, 4_998, 35), (930, 4_998, 35)] {
        let all = sorted((0..1_000_000u64).map(|n| format!("{:04}/{n:09}", n / of_folder)));
        let run = run(&all, page, 64, |_| 1, &[]);
        assert!(run.listed == all);
        let most = all.len().div_ceil(page) * 11 / 10;
        assert!(run.requests <= most && run.rounds <= rounds, "{} requests in {} rounds", run.requests, run.rounds);
    }
    // What the first folders promise isn't there: a few pages are wasted, once.
    let names =
        (0..30_000u64).map(|n| format!("{:04}/{n:09}", n / 1_000)).chain((30..1_000).map(|n| format!("{n:04}/x")));
    let all = sorted(names);
    let run = run(&all, 4_998, 64, |_| 1, &[]);
    assert!(run.listed == all);
    assert!(run.requests <= all.len().div_ceil(4_998) + 4, "{} requests", run.requests);
}

#[test]
fn no_more_pages_wait_than_a_caller_lets() {
    let all = sorted((0..1_000_000u64).map(|n| format!("{:08x}", n.wrapping_mul(0x9E37_79B1) as u32)));
    // The page that came last is the first one: all others wait.
    let held = |waiting| {
        let run = run_in(&all, (1_000, waiting), 64, |under_way| under_way - 1, &[]);
        assert!(run.listed == all);
        run.held
    };
    let (few, many) = (held(24_000), held(WINDOW));
    assert!(few <= 24 + 1 && many > 50, "{few} and {many} pages");
}

#[test]
fn a_slow_reader_holds_the_listing_back() {
    let all = sorted((0..100_000).map(|n| format!("{n:08}")));
    let entries: Vec<Entry> = all.iter().map(|key| Entry::file(key.clone(), 1)).collect();
    let mut ranges = Ranges::new(None, None, 100, WINDOW);
    let mut requests = 0;
    while let Some(ask) = ranges.next(8) {
        requests += 1;
        let from = ask.after.map_or(0, |after| all.partition_point(|key| *key <= after));
        let to = (from + 100).min(all.len());
        ranges.took(ask.range, &entries[from..to], to == all.len());
        if ranges.first().is_some_and(|(_, over)| over) || requests > 10_000 {
            break;
        }
    }
    assert!(requests < 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any keys, pages, widths and orders of arrival: each key once, in order; what fails is lost and nothing else.
    #[test]
    fn the_ranges_are_the_listing(
        names in proptest::collection::btree_set(
            prop_oneof![
                proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'/'), Just(b'0'), Just(b'9'), any::<u8>()], 1..7),
                (0u32..3_000).prop_map(|n| format!("d/{n:05}").into_bytes()),
                any::<u64>().prop_map(|n| format!("h/{n:016x}").into_bytes()),
            ],
            0..1_500,
        ),
        page in 1usize..9,
        width in 1usize..12,
        picks in proptest::collection::vec(0usize..64, 1..40),
        fails in proptest::collection::vec(1usize..400, 0..4),
    ) {
        let all: Vec<Key> = names.into_iter().map(Key::new).collect();
        let mut at = 0;
        let order = |_: usize| { at += 1; picks[at % picks.len()] };
        let run = run(&all, page, width, order, &fails);
        let lost = |key: &&Key| run.lost.iter().any(|lost| lost.holds(key));
        let wanted: Vec<&Key> = all.iter().filter(|key| !lost(key)).collect();
        prop_assert_eq!(run.listed.iter().collect::<Vec<_>>(), wanted);
        prop_assert!(run.lost.len() <= fails.len());
    }
}
