//! A listing in ranges that are read at once: which page to ask for next, where to cut, and when all was seen. Pure: pages are
//! handed in as they come, in any order; `haul/list` does the asking. The algorithm and its constants: ADR 10.
//!
//! Ranges touch: each ends with the very key after which the next one begins, and a range is over only when a page showed a key
//! beyond its end, or that there are no more. So together they hold every key once, wherever the cuts are.

mod folders;
mod random_names;
mod ruler;

use crate::{Entry, Key, MissedRange};
use folders::Folders;
use random_names::Spread;
use ruler::Ruler;
use std::collections::VecDeque;

/// Entries that may wait for those before them, where nobody says less: 330 bytes each, half as many on the average.
pub const WINDOW: usize = 192_000;
/// Part of the pages that may be of no use: 10 % is promised, and a cut may cost more than it was taken to.
const WASTE: f64 = 0.06;
/// Pages of a range, least and most.
const PAGES: (f64, f64) = (4.0, 16.0);
/// Assumed cost of a cut where nothing is known: half of its last page is of use.
const HALF: f64 = 0.5;
/// The least that a cut is taken to cost.
const LEAST: f64 = 0.1;
/// Part of a page that a cut may cost beyond what is expected, before any has shown it: forecasts may be right to the key and each range
/// still end a few keys after a whole page, where folders end nearly where pages do.
const UNSHOWN: f64 = 0.2;
/// Pages that a forecast is taken from, before it begins anew.
const RECENT: f64 = 32.0;
/// From this part on a page counts as a whole one.
const WHOLE: f64 = 0.9;
/// Part of the pages that names drawn at random promise that are counted on.
const PROMISED: f64 = 0.75;
/// Share of pages that cuts between folders may waste: each may cost a whole page, and no other does.
const WASTE_AT_FOLDERS: f64 = 0.08;
/// Pages that such cuts may lie ahead, as a part of those that may wait: of most ranges some have been given out.
const AHEAD: f64 = 1.3;
/// Pages after which a request for folders is a small part.
const FOLDERS_AFTER: f64 = 60.0;
/// Pages after which folders are asked for where a page holds several: their number says how much there is, and cuts between them can end
/// just before a page does. A request more is what may be wasted of so many pages, if nothing else is.
const SMALL_FOLDERS_AFTER: f64 = 4.0;
/// Folders of a page that are several.
const SEVERAL: f64 = 2.0;
/// Cuts that a forecast of their cost counts for.
const BELIEVED: f64 = 4.0;
/// One name of this many is sampled for the pattern of names.
const SAMPLED: usize = 8;

/// A page to ask for: the first one after this key (`None`: from the start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Number of its range.
    pub range: u64,
    /// Where it begins.
    pub after: Option<Key>,
}

/// The ranges of one listing.
#[derive(Debug)]
pub struct Ranges {
    /// Entries of a page.
    page: usize,
    /// Pages that may wait or be under way.
    window: usize,
    /// In order. The first is the one that is delivered; earlier ones were removed.
    ranges: VecDeque<Range>,
    numbers: u64,
    in_flight: usize,
    /// Pages that wait to be given out.
    held: usize,
    /// Pages of use so far, and what of pages was of none.
    useful: f64,
    wasted: f64,
    /// Ranges that ended at a cut, and what that wasted.
    ended: f64,
    cost: f64,
    /// Mean square of how far a page ended off its forecast, in pages.
    off: f64,
    /// Forecasts so far.
    forecasts: f64,
    /// Ranges of which nothing is known yet, that may be under way at once between known keys: grows as they prove right.
    trust: f64,
    /// How far ahead the next cut into the unknown is, in pages.
    stride: f64,
    ruler: Ruler,
    /// Promise of the first page, until something contradicts it.
    spread: Option<Spread>,
    /// The first key of all.
    first: Option<Key>,
    /// Where cuts may lie, once somebody asked.
    folders: Folders,
}

#[derive(Debug)]
struct Range {
    number: u64,
    /// Still to be listed: after this,
    after: Option<Key>,
    /// up to and with this; `None`: to the end.
    until: Option<Key>,
    state: State,
    /// A page of it came and had keys of it.
    found: bool,
    /// No page of it has been asked for.
    fresh: bool,
    /// Measure that its pages are estimated by.
    measure: Option<Measure>,
    /// Measure of its own last pages.
    own: Option<Measure>,
    /// Pages still to come, as estimated; only where it ends at a cut.
    left: f64,
    /// No cut was found; wait for the next page.
    stuck: bool,
}

/// Two keys, and the pages between them.
#[derive(Clone, Debug)]
struct Measure {
    from: Key,
    to: Key,
    pages: f64,
    /// It begins where a page ended.
    follows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    InFlight,
    Over,
}

impl Ranges {
    /// A listing of what comes after `after`, up to and with `until` (`None`: to the end), in pages of `page` entries, of which `waiting`
    /// may wait for those before them.
    #[must_use]
    pub fn new(after: Option<Key>, until: Option<Key>, page: usize, waiting: usize) -> Self {
        let first = Range {
            number: 0,
            after,
            until,
            state: State::Idle,
            found: false,
            fresh: true,
            measure: None,
            own: None,
            left: 0.0,
            stuck: false,
        };
        Ranges {
            page: page.max(1),
            window: (waiting / page.max(1)).max(4),
            ranges: VecDeque::from([first]),
            numbers: 1,
            in_flight: 0,
            held: 0,
            useful: 0.0,
            wasted: 0.0,
            ended: 0.0,
            cost: 0.0,
            off: 1.0,
            forecasts: 0.0,
            trust: 2.0,
            stride: 0.0,
            ruler: Ruler::default(),
            spread: None,
            first: None,
            folders: Folders::default(),
        }
    }

    /// The next page to ask for, where `width` may be under way at once; `None` when one must end first, or be given out.
    pub fn next(&mut self, width: usize) -> Option<PageRequest> {
        if self.in_flight >= width.max(1) {
            return None;
        }
        let at = self.idle().or_else(|| self.cut())?;
        let range = &mut self.ranges[at];
        (range.state, range.fresh) = (State::InFlight, false);
        self.in_flight += 1;
        Some(PageRequest { range: range.number, after: range.after.clone() })
    }

    /// The first range whose next page is wanted.
    fn idle(&self) -> Option<usize> {
        let window = self.window;
        let mut ahead = self.held as f64;
        let full = self.held + self.in_flight >= window;
        for (at, range) in self.ranges.iter().enumerate() {
            if range.state == State::Idle && (at == 0 || !full && (range.fresh || ahead < window as f64)) {
                return Some(at);
            }
            ahead += range.left;
        }
        None
    }

    /// Takes a page that was asked for: how many of its entries, from the first, belong to the range and are new. `ended` when
    /// nothing comes after them.
    pub fn took(&mut self, number: u64, entries: &[Entry], ended: bool) -> usize {
        let Some(at) = self.ranges.iter().position(|range| range.number == number) else { return 0 };
        self.in_flight -= 1;
        self.ruler.learn(entries.iter().step_by(SAMPLED).map(|entry| entry.key.as_bytes()));
        let range = &mut self.ranges[at];
        let keep = match &range.until {
            Some(until) => entries.partition_point(|entry| entry.key <= *until),
            None => entries.len(),
        };
        let share = keep as f64 / self.page as f64;
        self.useful += share;
        self.held += usize::from(keep > 0);
        let beyond = keep < entries.len();
        if self.first.is_none() {
            self.first = entries.first().map(|entry| entry.key.clone());
        }
        if let Some(first) = &self.first {
            self.folders.seen(first, &entries[..keep]);
        }
        if self.numbers == 1 && !range.found && keep >= self.page && !ended {
            self.spread = Spread::seen(&entries.iter().map(|entry| &entry.key).collect::<Vec<_>>());
        }
        let range = &mut self.ranges[at];
        range.stuck = false;
        let follows = range.found;
        let before = range.after.clone();
        if let (Some(spread), Some(after), Some(last)) = (&mut self.spread, &range.after, entries[..keep].last()) {
            spread.learn(after, &last.key, share);
        }
        if let Some(last) = entries[..keep].last() {
            range.found = true;
            range.after = Some(last.key.clone());
            let from = before.filter(|_| follows).unwrap_or_else(|| entries[0].key.clone());
            self.measured(at, follows, from, &last.key, share);
        }
        let range = &mut self.ranges[at];
        let reached = range.until.is_some() && range.after >= range.until;
        range.state = if ended || beyond || reached { State::Over } else { State::Idle };
        let over = range.state == State::Over;
        if over {
            range.left = 0.0;
        }
        if beyond || (keep == 0 && self.numbers > 1) {
            let waste = if keep == 0 { 1.0 } else { (entries.len() - keep) as f64 / self.page as f64 };
            self.wasted += waste;
            self.cost += waste;
        }
        self.ended += f64::from(u8::from(over));
        if number > 0 && !follows && !ended {
            self.trust = if keep > 0 { self.trust + 1.0 } else { (self.trust / 2.0).max(1.0) };
        }
        if ended && !beyond {
            self.nothing_after(at, keep > 0);
        } else if at + 1 == self.ranges.len() && at > 0 && !follows {
            // Keys taken for unknown are known to exist.
            self.stride *= 2.0;
        }
        keep
    }

    /// No key comes after what range `at` has seen.
    fn nothing_after(&mut self, at: usize, found: bool) {
        for range in self.ranges.iter_mut().skip(at + 1) {
            if range.state == State::Idle {
                range.state = State::Over;
            }
            range.left = 0.0;
        }
        if !found {
            self.stride /= 4.0;
            self.spread = None;
            // The range before is now the one whose end isn't known.
            if let Some(before) = at.checked_sub(1) {
                self.ranges[before].left = 0.0;
            }
        }
    }

    /// Range `at` received `share` of a page, which ends with `last`. A page that follows another of its range begins `from` where that
    /// ended, so that it covers any gap between two folders; the first one begins with its first key.
    fn measured(&mut self, at: usize, follows: bool, from: Key, last: &Key, share: f64) {
        let range = &mut self.ranges[at];
        let page = Measure { from, to: last.clone(), pages: share, follows };
        let mut own = match range.own.take() {
            Some(own) if own.follows && own.pages < RECENT => {
                Measure { to: last.clone(), pages: own.pages + share, ..own }
            }
            _ => page.clone(),
        };
        let mut wrong = false;
        if let Some(measure) = &range.measure
            && share > WHOLE
            && page.follows == measure.follows
        {
            let scale = self.ruler.scale(&[&measure.from, &measure.to, &page.from, last]);
            let forecast = scale.between(&measure.from, &measure.to) / measure.pages * share;
            if forecast > 0.0 {
                let off = (scale.between(&page.from, last) / forecast - 1.0).clamp(-1.0, 1.0);
                wrong = off.abs() > 4.0 * self.off.sqrt() + 0.05;
                self.forecasts += 1.0;
                self.off += (off * off - self.off) / self.forecasts.min(8.0);
            }
        }
        let range = &mut self.ranges[at];
        // A measure from elsewhere, or over more pages, counts unless this is another kind of place.
        if wrong {
            own = page;
            self.spread = None;
        }
        let longer = range.measure.as_ref().is_none_or(|measure| own.pages >= measure.pages.min(RECENT / 2.0));
        if longer || wrong {
            range.measure = Some(own.clone());
        }
        range.own = Some(own);
        self.forecast(at);
    }

    /// Pages left in range `at`, estimated by its folders; `None` where they give no estimate, or it has delivered more than that.
    fn by_folders(&self, at: usize) -> Option<f64> {
        let range = &self.ranges[at];
        let brought = range.own.as_ref().map_or(0.0, |own| own.pages);
        let (after, until) = range.after.as_ref().zip(range.until.as_ref())?;
        if brought > 1.5 * PAGES.1 { None } else { self.folders.between(after, until) }
    }

    /// Says anew how much of a range is to come.
    fn forecast(&mut self, at: usize) {
        let range = &self.ranges[at];
        let left = match (&range.after, &range.until, &range.measure) {
            _ if let Some(pages) = self.by_folders(at) => pages,
            (Some(after), Some(until), Some(Measure { from, to, pages, .. })) => {
                let scale = self.ruler.scale(&[after, until, from, to]);
                let measured = scale.between(from, to);
                if measured > 0.0 { scale.between(after, until) / measured * pages } else { 0.0 }
            }
            _ => 0.0,
        };
        self.ranges[at].left = left;
    }

    /// Possible error, in pages, of a forecast of `pages` pages that rests on `measured` pages: the variation between pages, and the
    /// error of the measure.
    fn doubt(&self, pages: f64, measured: f64) -> f64 {
        (2.0 * (self.off * (pages + pages * pages / measured.max(0.5))).sqrt()).clamp(0.03, HALF)
    }

    /// Expected cost of a cut, in pages, and how many pages ahead it should lie for that.
    fn expected(&self) -> (f64, f64) {
        let cost = |pages: f64| (self.cost + 8.0 * self.doubt(pages, RECENT / 4.0)) / (self.ended + 8.0);
        let mut pages = PAGES.0;
        while pages < PAGES.1 && cost(pages) > 0.6 * WASTE * pages {
            pages += 1.0;
        }
        (cost(pages).max(LEAST), pages)
    }

    /// The last range that is known to hold something: before it all cuts lie between keys that are there.
    fn frontier(&self) -> Option<usize> {
        self.ranges.iter().rposition(|range| range.found)
    }

    /// Ranges of which nothing is known yet.
    fn blind(&self) -> f64 {
        self.ranges.iter().filter(|range| !range.found && range.state != State::Over).count() as f64
    }

    /// The directory whose folders should be asked for, by one request: their keys are in several folders of it, of which each page holds
    /// several, or many pages have come and cuts elsewhere cost too much. Once.
    pub fn wants_folders(&mut self) -> Option<Key> {
        let last = self.ranges[self.frontier()?].after.as_ref()?;
        let open = self.ranges.back().is_some_and(|range| range.state != State::Over);
        let costly = self.ended >= 2.0 && self.cost > HALF * self.ended;
        let small = !self.folders.are_too_many()
            && self.folders.whole() as f64 >= SEVERAL * self.useful
            && self.useful >= SMALL_FOLDERS_AFTER;
        if !(small || self.useful >= FOLDERS_AFTER && costly) || self.spread.is_some() || !open {
            return None;
        }
        let dir = self.folders.wanted(self.first.as_ref()?, last)?;
        self.wasted += 1.0;
        Some(dir)
    }

    /// The folders of that directory, in order, as far as one page names them; `ended` when there are no more. Of small ones a part says
    /// neither how much there is nor where to cut behind it: they are of no use before guesses have shown that they cost more.
    pub fn has_folders(&mut self, folders: Vec<Key>, ended: bool) {
        if ended || self.useful >= FOLDERS_AFTER {
            self.folders.known(folders);
        } else {
            self.folders.too_many();
        }
    }

    /// Expected cost of a cut between folders, in pages, and how many pages ahead it should lie for that.
    fn expected_at_folders(&self) -> (f64, f64) {
        // Large ones end anywhere in a page.
        if self.folders.waste(PAGES.0).is_none() {
            return (1.0, PAGES.1);
        }
        let cost = |pages: f64| {
            let forecast = self.folders.waste(pages).map_or(1.0, |waste| (waste + UNSHOWN).min(1.0));
            (BELIEVED * forecast + self.cost) / (BELIEVED + self.ended)
        };
        let mut pages = PAGES.0;
        while pages < PAGES.1 && cost(pages) > WASTE_AT_FOLDERS * pages {
            pages += 1.0;
        }
        (cost(pages), pages)
    }

    /// Cuts between folders that are still worth it, each of the `cost`, where `left` pages are left behind the known ranges.
    fn room_at_folders(&self, left: f64, open: f64, cost: f64) -> f64 {
        let known: f64 = self.ranges.iter().map(|range| range.left).sum();
        (WASTE_AT_FOLDERS * (self.useful + HALF * (known + left)) - self.wasted) / cost - open
    }

    /// Cuts the last range where a folder begins, and gives the second one, if that is worth it now. `None` where folders don't say how.
    fn cut_at_folder(&mut self, open: f64) -> Option<Option<usize>> {
        let at = self.ranges.len() - 1;
        let range = &self.ranges[at];
        if self.spread.is_some() || range.state == State::Over {
            return None;
        }
        let seen = self.ranges.iter().filter_map(|range| range.own.as_ref());
        self.folders.measure(self.page, self.useful, seen.map(|own| (&own.from, &own.to, own.pages)));
        let (cost, pages) = self.expected_at_folders();
        let range = &self.ranges[at];
        let (cut, pages, left) = self.folders.cut(range.after.as_ref()?, range.until.as_ref(), pages)?;
        let room = self.room_at_folders(left, open, cost);
        let ahead = self.held as f64 + self.ranges.iter().map(|range| range.left).sum::<f64>();
        let worth = room >= 1.0 && self.blind() < self.trust && ahead < AHEAD * self.window as f64;
        Some(worth.then(|| self.split(at, cut, pages)))
    }

    /// Cuts a range in two and gives the second one, if that is worth it.
    fn cut(&mut self) -> Option<usize> {
        let frontier = self.frontier()?;
        let (cost, pages) = self.expected();
        let open =
            self.ranges.iter().take(self.ranges.len() - 1).filter(|range| range.state != State::Over).count() as f64;
        let at_folder = self.cut_at_folder(open);
        let (folder_cost, folder_pages) = self.expected_at_folders();
        if let Some(Some(new)) = at_folder {
            return Some(new);
        }
        let unknown = self.ranges.iter().skip(frontier + 1).any(|range| range.state == State::InFlight);
        let known: f64 = self.ranges.iter().take(frontier).map(|range| range.left).sum();
        let basis = self.useful + HALF * known.min(3.0 * self.useful).min(8.0 * self.trust);
        let basis = basis.max(PROMISED * self.spread.as_ref().map_or(0.0, Spread::pages));
        // As long as few cuts have shown what they cost, they may cost more, most where forecasts are bad.
        let cost = cost + (1.0 - cost) * (4.0 * self.off).clamp(UNSHOWN, 1.0) * 4.0 / (4.0 + self.ended);
        let room = WASTE * basis - self.wasted - cost * open - if unknown { 1.0 - cost } else { 0.0 };
        if room < cost {
            return None;
        }
        let window = self.window as f64;
        let mut ahead = self.held as f64;
        let blind = self.blind();
        let spread = self.spread.as_ref().map(Spread::measure);
        for at in 0..frontier {
            if ahead >= window || blind >= self.trust {
                return None;
            }
            if let Some(measure) = &spread {
                self.reckon_by(at, measure);
            }
            let range = &self.ranges[at];
            let by_folders = self.by_folders(at);
            if range.state != State::Over
                && by_folders.is_some_and(|left| left >= 1.5 * folder_pages)
                && let Some(after) = &range.after
                && let Some((cut, pages, _)) = self.folders.cut(after, range.until.as_ref(), folder_pages)
                && self.room_at_folders(0.0, open, folder_cost) >= 1.0
            {
                let new = self.split(at, cut, pages);
                self.forecast(new);
                return Some(new);
            }
            if range.state != State::Over && !range.stuck && by_folders.is_none() && range.left >= 1.5 * pages {
                // A little less than that many pages, so that the last one shows what comes after the cut.
                let measured = range.measure.as_ref().map_or(1.0, |measure| measure.pages);
                let margin = self.doubt(pages, measured);
                if let Some(new) = self.cut_at(at, pages - margin) {
                    return Some(new);
                }
                self.ranges[at].stuck = true;
            }
            ahead += self.ranges[at].left;
        }
        let last = &self.ranges[frontier];
        if at_folder.is_some() || unknown || room < 1.0 || ahead >= window || last.state == State::Over || last.stuck {
            return None;
        }
        self.stride = self.stride.max(2.0 * pages).max(self.useful.min(20.0));
        // So many pages that ranges of the length in use fill it, each a little short of whole pages.
        let measured = last.measure.as_ref().map_or(1.0, |measure| measure.pages);
        let short = self.doubt(pages, measured) / pages;
        let promised = match (&self.spread, &last.after) {
            (Some(spread), Some(after)) => spread.ahead(after),
            _ => 0.0,
        };
        // Before a place behind which there is nothing, half the way.
        let stride = match last.until {
            Some(_) => self.stride.min(last.left / 2.0),
            None if promised > pages => promised / 2.0,
            None => self.stride,
        };
        let new = self.cut_at(frontier, (stride / pages).round().max(1.0) * pages * (1.0 - short));
        self.ranges[frontier].stuck = new.is_none();
        new
    }

    /// Reckons a range of names drawn at random by all that came of them, where that is more than it was reckoned by.
    fn reckon_by(&mut self, at: usize, (from, to, pages): &(Key, Key, f64)) {
        let range = &mut self.ranges[at];
        if range.measure.as_ref().is_some_and(|measure| measure.pages < *pages) {
            range.measure = Some(Measure { from: from.clone(), to: to.clone(), pages: *pages, follows: true });
            self.forecast(at);
        }
    }

    /// Cuts range `at` `pages` pages after its current end.
    fn cut_at(&mut self, at: usize, pages: f64) -> Option<usize> {
        let range = &self.ranges[at];
        let (after, measure) = (range.after.as_ref()?, range.measure.as_ref()?);
        let mut keys = vec![after, &measure.from, &measure.to];
        keys.extend(&range.until);
        // Where the measured scale is too short, a longer one applies: names with another beginning.
        let root = Key::new("");
        let scales = [self.ruler.scale(&keys), self.ruler.scale(&[&root, after])];
        let cut = scales.iter().find_map(|scale| {
            let step = (scale.between(&measure.from, &measure.to) / measure.pages * pages) as u128;
            let key = scale.key(scale.number(after).checked_add(step.max(1))?)?;
            let inside = key > *after && range.until.as_ref().is_none_or(|until| key < *until);
            (inside && std::str::from_utf8(key.as_bytes()).is_ok()).then_some(key)
        })?;
        let new = self.split(at, cut, 0.0);
        self.forecast(at);
        self.forecast(new);
        Some(new)
    }

    /// Cuts range `at`, which then has `left` pages left; returns the second part.
    fn split(&mut self, at: usize, cut: Key, left: f64) -> usize {
        let range = &mut self.ranges[at];
        let new = Range {
            number: self.numbers,
            after: Some(cut.clone()),
            until: range.until.replace(cut),
            state: State::Idle,
            found: false,
            fresh: true,
            measure: range.measure.clone(),
            own: None,
            left: 0.0,
            stuck: false,
        };
        range.left = left;
        self.numbers += 1;
        self.ranges.insert(at + 1, new);
        at + 1
    }

    /// A page could not be read: returns the range lost by that. The other ranges continue.
    pub fn failed(&mut self, number: u64) -> Option<MissedRange> {
        let range = self.ranges.iter_mut().find(|range| range.number == number)?;
        self.in_flight -= 1;
        (range.state, range.left) = (State::Over, 0.0);
        let next = |key: &Key| key.with_suffix([0]);
        Some(MissedRange {
            from: range.after.as_ref().map_or_else(|| Key::new(""), next),
            to: range.until.as_ref().map(next),
        })
    }

    /// A page was given out.
    pub fn gave(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// The range that is delivered now, and whether all of it has arrived; `None` when all ranges are finished and removed.
    #[must_use]
    pub fn first(&self) -> Option<(u64, bool)> {
        self.ranges.front().map(|range| (range.number, range.state == State::Over))
    }

    /// The first range was given out to its end.
    pub fn pass(&mut self) {
        self.ranges.pop_front();
    }
}

#[cfg(test)]
mod tests;
