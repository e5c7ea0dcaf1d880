//! `--bwlimit`: a limit for each direction, fixed or by the time of the week.

use haul::Cancel;
use haul_core::units::{Size, parse_size, size_text};
use haul_store::layers::rate::Rate;
use jiff::Zoned;
use std::{fmt, sync::Arc, time::Duration};

/// Limits by the time of the week, each from its minute on until the next one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// Sorted by minute of the week, which begins on Sunday at midnight; never empty.
    slots: Vec<(u32, Limit)>,
}

/// Bytes a second; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// To a remote.
    pub up: Option<u64>,
    /// From a remote.
    pub down: Option<u64>,
}

const DAY: u32 = 24 * 60;
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Timetable {
    /// Reads `10M`, `10M:1M` (up:down), `off`, or `08:00,512k 12:00,10M Sat-00:00,off`.
    pub fn parse(text: &str) -> Result<Timetable, String> {
        if !text.contains(',') {
            return Ok(Timetable { slots: vec![(0, limit(text.trim())?)] });
        }
        let mut slots = Vec::new();
        for word in text.split_whitespace() {
            let (time, rate) = word.split_once(',').ok_or_else(|| format!("{word:?} isn't TIME,LIMIT"))?;
            let (days, minute) = when(time)?;
            let limit = limit(rate)?;
            slots.extend(days.map(|day| (day * DAY + minute, limit)));
        }
        // Of two for one minute the later counts.
        slots.reverse();
        slots.sort_by_key(|(minute, _)| *minute);
        slots.dedup_by_key(|(minute, _)| *minute);
        Ok(Timetable { slots })
    }

    /// The limit that holds at a minute of the week.
    fn at(&self, minute: u32) -> Limit {
        let past = self.slots.iter().rev().find(|(from, _)| *from <= minute);
        // Before the first one of the week the last one of the week before still holds.
        past.or(self.slots.last()).map(|(_, limit)| *limit).unwrap_or_default()
    }

    /// The limit that holds now.
    pub fn now(&self, now: &Zoned) -> Limit {
        let day = now.weekday().to_sunday_zero_offset().unsigned_abs();
        self.at(u32::from(day) * DAY
            + u32::from(now.hour().unsigned_abs()) * 60
            + u32::from(now.minute().unsigned_abs()))
    }

    /// One limit for all times?
    pub fn is_fixed(&self) -> bool {
        self.slots.len() == 1
    }
}

/// How often the timetable is looked at: its times are whole minutes.
const LOOK: Duration = Duration::from_secs(15);

/// The limits of all together and of each file.
#[derive(Clone, Debug, Default)]
pub struct Timetables {
    /// `--bwlimit`.
    pub all: Option<Timetable>,
    /// `--bwlimit-file`.
    pub each: Option<Timetable>,
}

impl Timetables {
    /// The limits that hold now.
    fn now(&self) -> (Limit, Limit) {
        let now = Zoned::now();
        let of = |table: &Option<Timetable>| table.as_ref().map(|table| table.now(&now)).unwrap_or_default();
        (of(&self.all), of(&self.each))
    }

    /// The rate that follows them until the run is stopped; `None` where there are none.
    pub fn follow(self, cancel: &Cancel) -> Option<Arc<Rate>> {
        let given: Vec<bool> = [&self.all, &self.each].into_iter().flatten().map(Timetable::is_fixed).collect();
        let (any, fixed) = (!given.is_empty(), given.iter().all(|fixed| *fixed));
        let rate = Arc::new(Rate::default());
        let first = self.now();
        set(&rate, first);
        if any && !fixed {
            tokio::spawn(keep(self, rate.clone(), first, cancel.clone()));
        }
        any.then_some(rate)
    }
}

fn set(rate: &Rate, (all, each): (Limit, Limit)) {
    rate.set(all.up, all.down);
    rate.set_each(each.up, each.down);
}

async fn keep(tables: Timetables, rate: Arc<Rate>, mut last: (Limit, Limit), cancel: Cancel) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(LOOK).await;
        let limits = tables.now();
        if limits.0 != last.0 {
            tracing::warn!("Bandwidth limit is now {}", limits.0);
        }
        if limits.1 != last.1 {
            tracing::warn!("Bandwidth limit of each file is now {}", limits.1);
        }
        set(&rate, limits);
        last = limits;
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |rate: Option<u64>| rate.map_or("off".into(), |r| format!("{}/s", size_text(r)));
        write!(f, "{} up, {} down", one(self.up), one(self.down))
    }
}

/// The days and the minute of the day: `Mon-08:30`, or `08:30` for every day.
fn when(text: &str) -> Result<(std::ops::Range<u32>, u32), String> {
    let wrong = || format!("{text:?} isn't a time such as 08:30 or Mon-08:30");
    let (days, time) = match text.split_once('-') {
        None => (0..7, text),
        Some((day, time)) => {
            let short = day.get(..3).unwrap_or(day).to_ascii_lowercase();
            let at = DAYS.iter().position(|d| *d == short).ok_or_else(wrong)? as u32;
            (at..at + 1, time)
        }
    };
    let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
    match (hour.parse::<u32>(), minute.parse::<u32>()) {
        (Ok(hour @ 0..=23), Ok(minute @ 0..=59)) => Ok((days, hour * 60 + minute)),
        _ => Err(wrong()),
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    let one = |text: &str| match parse_size(text)? {
        Size::Off | Size::Bytes(0) => Ok::<_, String>(None),
        Size::Bytes(rate) => Ok(Some(rate)),
    };
    match text.split_once(':') {
        Some((up, down)) => Ok(Limit { up: one(up)?, down: one(down)? }),
        None => one(text).map(|both| Limit { up: both, down: both }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(rate: u64) -> Limit {
        Limit { up: Some(rate), down: Some(rate) }
    }

    #[test]
    fn fixed_limits() {
        for (text, limit) in [
            ("10M", both(10 << 20)),
            ("512", both(512 << 10)),
            ("10M:1M", Limit { up: Some(10 << 20), down: Some(1 << 20) }),
            ("off:100k", Limit { up: None, down: Some(100 << 10) }),
            ("off", Limit::default()),
            ("0", Limit::default()),
        ] {
            let table = Timetable::parse(text).unwrap();
            assert!(table.is_fixed());
            assert_eq!(table.at(1234), limit, "{text}");
        }
    }

    #[test]
    fn a_day_of_limits_goes_round_the_week() {
        let table = Timetable::parse("08:00,512k 12:00,10M:1M 23:00,off Sat-10:00,1M").unwrap();
        let at = |day: u32, hour: u32, minute: u32| table.at(day * DAY + hour * 60 + minute);
        assert_eq!(at(1, 7, 59), Limit::default());
        assert_eq!(at(1, 8, 0), both(512 << 10));
        assert_eq!(at(1, 12, 30), Limit { up: Some(10 << 20), down: Some(1 << 20) });
        assert_eq!(at(6, 11, 0), both(1 << 20));
        assert_eq!(at(6, 12, 0).down, Some(1 << 20));
        assert_eq!(at(0, 0, 0), Limit::default());
        let saturday: Zoned = "2026-11-21T10:30:00+00:00[UTC]".parse().unwrap();
        assert_eq!(table.now(&saturday), both(1 << 20));
    }

    #[test]
    fn bad_times_and_limits_are_named() {
        for bad in ["10Z", "08:00,x", "25:00,1M", "Foo-08:00,1M", "08:00,1M 9", "08,1M"] {
            assert!(Timetable::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Timetable::parse("8h,1M").unwrap_err(), "\"8h\" isn't a time such as 08:30 or Mon-08:30");
    }
}
