//! Which versions of a snapshot are kept, by rules as restic and borg have them. Pure.

use haul_core::Mtime;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::time::Duration;

/// The rules; a version stays if any of them keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How many of the newest are kept.
    pub last: u32,
    /// For how many hours the newest of the hour is kept; hours without any don't count.
    pub hourly: u32,
    /// For how many days the newest of the day is kept.
    pub daily: u32,
    /// For how many weeks the newest of the week is kept; weeks begin on Monday.
    pub weekly: u32,
    /// For how many months the newest of the month is kept.
    pub monthly: u32,
    /// For how many years the newest of the year is kept.
    pub yearly: u32,
    /// All that are at most this much older than the newest are kept: no clock is asked.
    pub within: Option<Duration>,
}

impl Rules {
    /// True when no rule keeps anything.
    pub fn none(&self) -> bool {
        let counts = [self.last, self.hourly, self.daily, self.weekly, self.monthly, self.yearly];
        counts.iter().all(|count| *count == 0) && self.within.is_none()
    }
}

/// Why each version is kept, in the order of `times`; an empty list for those that aren't. The newest is always kept, unless there are no rules
/// at all. `times` may be in any order; of two of one time the later in the list is the newer.
pub fn keep(rules: &Rules, times: &[Mtime], zone: &TimeZone) -> Vec<Vec<&'static str>> {
    let mut kept: Vec<Vec<&'static str>> = vec![Vec::new(); times.len()];
    let mut newest_first: Vec<usize> = (0..times.len()).collect();
    newest_first.sort_by_key(|n| std::cmp::Reverse((times[*n], *n)));
    let Some(newest) = newest_first.first().map(|n| times[*n]) else { return kept };
    for n in newest_first.iter().take(rules.last as usize) {
        kept[*n].push("last");
    }
    type PeriodOf = fn(&Zoned) -> (i16, i16, i8);
    let periods: [(&'static str, u32, PeriodOf); 5] = [
        ("hourly", rules.hourly, |at| (at.year(), at.day_of_year(), at.hour())),
        ("daily", rules.daily, |at| (at.year(), at.day_of_year(), 0)),
        ("weekly", rules.weekly, |at| {
            let week = at.date().iso_week_date();
            (week.year(), week.week().into(), 0)
        }),
        ("monthly", rules.monthly, |at| (at.year(), at.month().into(), 0)),
        ("yearly", rules.yearly, |at| (at.year(), 0, 0)),
    ];
    for (name, count, of) in periods {
        let (mut left, mut before) = (count, None);
        for n in &newest_first {
            // A time that no calendar has is in a period of its own.
            let period = Timestamp::from_nanosecond(times[*n].0).ok().map(|at| of(&at.to_zoned(zone.clone())));
            if left > 0 && (period.is_none() || before != Some(period)) {
                kept[*n].push(name);
                left -= 1;
            }
            before = Some(period);
        }
    }
    if let Some(within) = rules.within {
        let since = newest.0.saturating_sub(i128::try_from(within.as_nanos()).unwrap_or(i128::MAX));
        newest_first.iter().filter(|n| times[**n].0 >= since).for_each(|n| kept[*n].push("within"));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Mtime {
        let at: jiff::civil::DateTime = text.parse().unwrap();
        Mtime(at.to_zoned(TimeZone::UTC).unwrap().timestamp().as_nanosecond())
    }

    fn kept(rules: &Rules, times: &[&str]) -> Vec<String> {
        let times: Vec<Mtime> = times.iter().map(|text| at(text)).collect();
        keep(rules, &times, &TimeZone::UTC).iter().map(|why| why.join(" ")).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        let times = [
            "2025-12-31T23:00", // week 1 of 2026
            "2026-01-01T08:00",
            "2026-01-01T08:30",
            "2026-01-01T09:10",
            "2026-01-04T00:00", // Sunday of the same week
            "2026-01-05T00:00", // Monday
            "2026-02-01T12:00",
        ];
        let none = Rules::default();
        for (rules, want) in [
            (Rules { last: 2, ..none.clone() }, ["", "", "", "", "", "last", "last"]),
            (Rules { hourly: 4, ..none.clone() }, ["", "", "", "hourly", "hourly", "hourly", "hourly"]),
            (Rules { hourly: 5, ..none.clone() }, ["", "", "hourly", "hourly", "hourly", "hourly", "hourly"]),
            (Rules { daily: 9, ..none.clone() }, ["daily", "", "", "daily", "daily", "daily", "daily"]),
            (Rules { weekly: 3, ..none.clone() }, ["", "", "", "", "weekly", "weekly", "weekly"]),
            (Rules { monthly: 2, ..none.clone() }, ["", "", "", "", "", "monthly", "monthly"]),
            (Rules { yearly: 9, ..none.clone() }, ["yearly", "", "", "", "", "", "yearly"]),
            (
                Rules { within: Some(Duration::from_secs(29 * 86_400)), ..none.clone() },
                ["", "", "", "", "within", "within", "within"],
            ),
            (Rules { last: 1, yearly: 1, ..none.clone() }, ["", "", "", "", "", "", "last yearly"]),
            (none.clone(), ["", "", "", "", "", "", ""]),
        ] {
            assert_eq!(kept(&rules, &times), want, "{rules:?}");
        }
    }

    #[test]
    fn periods_are_those_of_the_time_zone() {
        let times = ["2026-01-01T22:30", "2026-01-01T23:30"].map(at);
        let rules = Rules { yearly: 9, daily: 9, ..Rules::default() };
        let there = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(keep(&rules, &times, &there), [vec!["daily"], vec!["daily", "yearly"]]);
        assert_eq!(keep(&rules, &times, &TimeZone::UTC), [vec![], vec!["daily", "yearly"]]);
    }

    fn rules() -> impl Strategy<Value = Rules> {
        let count = || 0_u32..6;
        let within = proptest::option::of((0_u64..400).prop_map(|days| Duration::from_secs(days * 86_400)));
        (count(), count(), count(), count(), count(), count(), within).prop_map(
            |(last, hourly, daily, weekly, monthly, yearly, within)| Rules {
                last,
                hourly,
                daily,
                weekly,
                monthly,
                yearly,
                within,
            },
        )
    }

    fn is_kept(rules: &Rules, times: &[Mtime]) -> Vec<bool> {
        keep(rules, times, &TimeZone::UTC).iter().map(|why| !why.is_empty()).collect()
    }

    proptest! {
        #[test]
        fn what_always_holds(
            rules in rules(),
            hours in proptest::collection::vec(0_i64..24 * 900, 1..40),
        ) {
            let times: Vec<Mtime> = hours.iter().map(|h| Mtime(i128::from(*h) * 3_600_000_000_000)).collect();
            let kept = is_kept(&rules, &times);
            // The newest stays as long as there is a rule.
            let newest = (0..times.len()).max_by_key(|n| (times[*n], *n)).unwrap();
            prop_assert_eq!(kept[newest], !rules.none());
            // No rule keeps more than it may.
            let why = keep(&rules, &times, &TimeZone::UTC);
            for (name, count) in [("last", rules.last), ("hourly", rules.hourly), ("daily", rules.daily),
                ("weekly", rules.weekly), ("monthly", rules.monthly), ("yearly", rules.yearly)] {
                let n = why.iter().filter(|why| why.contains(&name)).count();
                prop_assert!(n <= count as usize, "{} {}", name, n);
            }
            // Forgetting twice forgets no more: what stays would stay again.
            let left: Vec<Mtime> = times.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(time, _)| *time).collect();
            prop_assert!(is_kept(&rules, &left).into_iter().all(|kept| kept), "{:?}", left);
            // A rule more never removes more.
            let more = Rules { last: rules.last + 1, daily: rules.daily + 1, ..rules };
            prop_assert!(kept.iter().zip(is_kept(&more, &times)).all(|(less, more)| !less || more));
        }
    }
}
