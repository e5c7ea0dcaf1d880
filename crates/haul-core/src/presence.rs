//! Choice of a way to find out which of some keys a store has: ask for each, leap through its listing, or list all of it. Pure:
//! observations go in, a choice comes out. `haul::presence` does the asking.

use std::fmt;

/// A way to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One question a key.
    Ask,
    /// List from the next key that is in doubt, jump over what isn't asked for.
    Leap,
    /// List everything.
    List,
}

/// A choice and what it rests on; as text, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodChoice {
    /// How.
    pub method: Method,
    /// Why.
    pub why: ChoiceReason,
}

/// Basis of a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChoiceReason {
    /// The user said so.
    Pinned,
    /// There is nothing to choose: this store doesn't list in pages.
    OnlyWay,
    /// So few keys that looking first costs more than asking.
    Few(usize),
    /// The first page was the last.
    SeenWhole,
    /// Keys that a page settles.
    PerPage(f64),
}

/// Result of sampling the store's listing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Pages that were read, each begun at a key in doubt.
    pub pages: u64,
    /// Keys that they settled, including the first.
    pub settled: u64,
    /// Nothing comes after them.
    pub ended: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Read one more page to know better; it is of use whatever is chosen then.
    Look,
    /// That's it.
    Go(MethodChoice),
}

/// Up to this many keys are asked for at once, without a sample: that is one round trip whatever the store holds, and a sample is one
/// more.
pub const FEW: usize = 16;

/// A page takes as long as this many questions: S3 answers a HEAD in 15 to 50 ms and sends a page of 1,000 keys in 60 to 130, and
/// reading it takes this machine as long as a dozen HEADs.
const PAGE: f64 = 2.0;

/// Pages that the choice may cost.
const LOOKS: u64 = 2;

/// A page that settles this many keys leaves no doubt.
const CLEAR: u64 = 6;

/// Up to this many keys are asked for in about two round trips: a second sample would cost more than it can save.
const SOME: usize = 128;

/// Chooses between asking and leaping. `wanted` is the number of keys, `None` when there are more than were counted.
///
/// Listing everything is never chosen here: leaping takes no more requests than keys in doubt, nor than pages between the first
/// and the last of them. A full listing is for callers that need the other keys too.
pub fn choose(wanted: Option<usize>, sample: Sample) -> Next {
    let go = |method, why| Next::Go(MethodChoice { method, why });
    if let Some(few) = wanted.filter(|n| *n <= FEW) {
        return go(Method::Ask, ChoiceReason::Few(few));
    }
    if sample.ended {
        return go(Method::Leap, ChoiceReason::SeenWhole);
    }
    let looks = if wanted.is_some_and(|n| n <= SOME) { 1 } else { LOOKS };
    if sample.pages == 0 || sample.pages < looks && sample.settled < CLEAR {
        return Next::Look;
    }
    let per_page = sample.settled as f64 / sample.pages as f64;
    go(if per_page >= PAGE { Method::Leap } else { Method::Ask }, ChoiceReason::PerPage(per_page))
}

impl fmt::Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.method {
            Method::Ask => "asking for each file",
            Method::Leap => "listing from file to file, leaping over what isn't asked for",
            Method::List => "listing everything",
        })?;
        match self.why {
            ChoiceReason::Pinned => f.write_str(", as a flag says"),
            ChoiceReason::OnlyWay => Ok(()),
            ChoiceReason::Few(n) => write!(f, ": there are only {n}"),
            ChoiceReason::SeenWhole => f.write_str(": the first page was the last"),
            ChoiceReason::PerPage(n) => write!(f, ": a page of the listing settles about {n:.1} of them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_KEYS: u64 = 1_000;
    /// Requests at once.
    const WIDTH: f64 = 64.0;

    /// Pages that leaping takes when both are evenly spread: each settles the key it begins at and those in its span.
    fn leap(files: u64, keys: u64) -> u64 {
        let per_page = 1 + files * PAGE_KEYS / keys.max(PAGE_KEYS);
        files.div_ceil(per_page).min(keys.div_ceil(PAGE_KEYS)).max(1)
    }

    /// Time in questions' round trips.
    fn time(requests: u64, each: f64) -> f64 {
        (requests as f64 / WIDTH).max(1.0) * each
    }

    fn chosen(files: u64, keys: u64) -> (Method, u64) {
        let (mut sample, mut looks) = (Sample::default(), 0);
        let per_page = if keys <= PAGE_KEYS { files } else { (1 + files * PAGE_KEYS / keys).min(files) };
        loop {
            match choose(Some(files as usize), sample) {
                Next::Go(choice) => return (choice.method, looks),
                Next::Look => {
                    looks += 1;
                    sample.pages += 1;
                    sample.settled += per_page;
                    sample.ended = keys <= PAGE_KEYS;
                }
            }
        }
    }

    #[test]
    fn the_choice_is_close_to_the_best_and_costs_two_requests_at_most() {
        for (files, row) in [
            (10, [Method::Ask; 4]),
            (100, [Method::Leap, Method::Leap, Method::Ask, Method::Ask]),
            (1_000, [Method::Leap, Method::Leap, Method::Leap, Method::Ask]),
            (10_000, [Method::Leap; 4]),
            (100_000, [Method::Leap; 4]),
        ] {
            for (keys, wanted) in [0, 1_000, 1_000_000, 10_000_000].into_iter().zip(row) {
                let (method, looks) = chosen(files, keys);
                assert_eq!(method, wanted, "{files} files, {keys} keys");
                assert!(looks <= if files > SOME as u64 { LOOKS } else { 1 }, "{files} files, {keys} keys");
                let ask = time(files, 1.0);
                let leap = time(leap(files, keys), PAGE);
                let list = time(keys.div_ceil(PAGE_KEYS).max(1), PAGE);
                let ours = if method == Method::Ask { ask } else { leap };
                let best = ask.min(leap).min(list);
                // The samples themselves take at most two round trips of pages.
                assert!(ours <= 1.25 * best + looks as f64 * PAGE, "{files} files, {keys} keys: {ours} and not {best}");
            }
        }
    }

    #[test]
    fn a_choice_reads_well() {
        let say = |method, why| MethodChoice { method, why }.to_string();
        assert_eq!(say(Method::Ask, ChoiceReason::Few(3)), "asking for each file: there are only 3");
        assert_eq!(say(Method::List, ChoiceReason::Pinned), "listing everything, as a flag says");
        let leap = "listing from file to file, leaping over what isn't asked for";
        assert_eq!(
            say(Method::Leap, ChoiceReason::PerPage(9.55)),
            format!("{leap}: a page of the listing settles about 9.6 of them")
        );
        assert_eq!(say(Method::Leap, ChoiceReason::SeenWhole), format!("{leap}: the first page was the last"));
    }
}
