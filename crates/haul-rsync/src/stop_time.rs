//! `--stop-after` and `--stop-at`: when a run is to end. Pure: takes the time, gives a time.

use jiff::{
    ToSpan as _, Zoned,
    civil::{Date, Time},
};

/// Days in which every date comes at least once: February 29th may be eight years away.
const DAYS: i32 = 8 * 366;

/// The typed time; a field of `None` is the next that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StopTime {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    hour: Option<i8>,
    minute: i8,
}

/// The next time after `now` that `[[[YEAR-]MONTH-]DAY][T][HOUR]:MINUTE` means. A date alone means its midnight.
///
/// Errors: one line: that it is none, or that there is none to come.
pub fn at(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let wanted = parse(text).ok_or_else(|| format!("invalid --stop-at format: {text}"))?;
    let none = || format!("--stop-at time is not in the future: {text}");
    let year = wanted.year.and_then(|year| Date::new(year, 1, 1).ok());
    let first = year.map_or(now.date(), |year| year.max(now.date()));
    for ahead in 0..DAYS {
        let Ok(date) = first.checked_add(ahead.days()) else { break };
        if fits(wanted.year, date.year()) && fits(wanted.month, date.month()) && fits(wanted.day, date.day()) {
            let hours = wanted.hour.map_or(0..=23, |hour| hour..=hour);
            let times = hours.filter_map(|hour| zoned(date, hour, wanted.minute, now));
            if let Some(at) = times.into_iter().find(|at| at > now) {
                return Ok(at);
            }
        }
    }
    Err(none())
}

fn fits<T: PartialEq>(wanted: Option<T>, there: T) -> bool {
    wanted.is_none_or(|wanted| wanted == there)
}

fn zoned(date: Date, hour: i8, minute: i8, now: &Zoned) -> Option<Zoned> {
    date.to_datetime(Time::new(hour, minute, 0, 0).ok()?).to_zoned(now.time_zone().clone()).ok()
}

fn parse(text: &str) -> Option<StopTime> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None if text.contains(':') => ("", Some(text)),
        None => (text, None),
    };
    let mut wanted = StopTime::default();
    let number = |text: &str| Some(text).filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?.parse::<i16>().ok();
    if !date.is_empty() {
        let parts = date.split(['-', '/']).map(number).collect::<Option<Vec<i16>>>()?;
        let small = |n: i16, most: i8| i8::try_from(n).ok().filter(|n| (1..=most).contains(n));
        let (year, month, day) = match parts[..] {
            [day] => (None, None, day),
            [month, day] => (None, Some(month), day),
            [year, month, day] => (Some(if year < 100 { 2000 + year } else { year }), Some(month), day),
            _ => return None,
        };
        wanted.year = year;
        wanted.month = month.map(|month| small(month, 12).ok_or(())).transpose().ok()?;
        wanted.day = Some(small(day, 31)?);
    }
    let Some(time) = time else { return wanted.day.map(|_| StopTime { hour: Some(0), ..wanted }) };
    let (hour, minute) = time.split_once(':')?;
    let small = |text: &str, most: i16| number(text).filter(|n| *n <= most).and_then(|n| i8::try_from(n).ok());
    wanted.hour = if hour.is_empty() { None } else { Some(small(hour, 23)?) };
    wanted.minute = small(minute, 59)?;
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_that_fits_is_meant() {
        let now: Zoned = "2026-11-22T14:30:10[UTC]".parse().unwrap();
        let is = |text: &str| at(text, &now).map(|at| at.strftime("%Y-%m-%dT%H:%M").to_string());
        for (text, expected) in [
            ("2026-11-22T14:31", "2026-11-22T14:31"),
            ("26/12/1T5:00", "2026-12-01T05:00"),
            ("14:00", "2026-11-23T14:00"),
            ("23:59", "2026-11-22T23:59"),
            (":59", "2026-11-22T14:59"),
            (":30", "2026-11-22T15:30"),
            ("1-30", "2027-01-30T00:00"),
            ("1", "2026-12-01T00:00"),
            ("31", "2026-12-31T00:00"),
            ("2-29", "2028-02-29T00:00"),
            ("22T15:00", "2026-11-22T15:00"),
            ("2099-12-31", "2099-12-31T00:00"),
        ] {
            assert_eq!(is(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["zz", "99:99", "1-2-3-4", "25T", "", "1-", "13-1", ":", "24:00", "-1"] {
            assert_eq!(is(text), Err(format!("invalid --stop-at format: {text}")));
        }
        for text in ["2000-01-01", "2026-11-22T14:30"] {
            assert_eq!(is(text), Err(format!("--stop-at time is not in the future: {text}")));
        }
    }
}
