//! `--usermap` and `--groupmap`: whose files become whose. Names become numbers here, once: a pattern of names stands for the
//! users or groups that `/etc/passwd` or `/etc/group` lists.

use haul_core::{filter::first_match::Pattern, keep::IdMap};
use haul_fs::owners::{gid_of, uid_of};
use std::ops::RangeInclusive;

/// Reads `--usermap`.
///
/// Errors: one line that names the piece that can't be meant.
pub fn users(text: &str) -> Result<IdMap, String> {
    read("usermap", text, "/etc/passwd", uid_of)
}

/// Reads `--groupmap`.
///
/// Errors: as for [`users`].
pub fn groups(text: &str) -> Result<IdMap, String> {
    read("groupmap", text, "/etc/group", gid_of)
}

fn read(option: &str, text: &str, list: &str, find: fn(&str) -> Result<Option<u32>, String>) -> Result<IdMap, String> {
    let id = |name: &str| match name.parse() {
        Ok(id) => Ok(Some(id)),
        Err(_) => find(name).map_err(|why| format!("--{option}: can't find out who {name:?} is: {why}")),
    };
    let mut map = IdMap::default();
    for piece in text.split(',') {
        let (from, to) = piece.split_once(':').ok_or_else(|| format!("No colon found in --{option}: {piece}"))?;
        let to = id(to)?.ok_or_else(|| format!("--{option}={piece}: {to:?} is not known here: give a number"))?;
        if from.is_empty() {
            return Err(format!("--{option}={piece}: haul rsync doesn't support a rule for numbers without a name"));
        }
        if from == "*" {
            map.add(0..=u32::MAX, to);
        } else if from.starts_with(|c: char| c.is_ascii_digit()) {
            map.add(numbers(from).ok_or_else(|| format!("Invalid number in --{option}: {from}"))?, to);
        } else if from.contains(['*', '?', '[']) {
            let pattern = Pattern::new(from.as_bytes()).map_err(|why| format!("--{option}={piece}: {why}"))?;
            listed(option, list)?.lines().for_each(|line| {
                let mut fields = line.split(':');
                let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1).and_then(|id| id.parse().ok()));
                if let Some(id) = id.filter(|_| pattern.matches(name.as_bytes(), false)) {
                    map.add(id..=id, to);
                }
            });
        } else if let Some(from) = id(from)? {
            // A user unknown here owns nothing here.
            map.add(from..=from, to);
        }
    }
    Ok(map)
}

fn listed(option: &str, list: &str) -> Result<String, String> {
    let text = super::named_files::read(list.as_bytes(), true).map_err(|why| format!("--{option}: {list}: {why}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `5`, or `5-9`.
fn numbers(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_holds_an_id_counts() {
        let map = users("root:7,5-9:1,no-such-user:3,*:2").unwrap();
        assert_eq!([0, 5, 9, 10].map(|id| map.of(id)), [Some(7), Some(1), Some(1), Some(2)]);
        let map = groups("r??t:4").unwrap();
        assert_eq!([0, 1].map(|id| map.of(id)), [Some(4), None]);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (text, line) in [
            ("5", "No colon found in --usermap: 5"),
            ("5-x:1", "Invalid number in --usermap: 5-x"),
            ("1:no-such-user", "--usermap=1:no-such-user: \"no-such-user\" is not known here: give a number"),
            (":5", "--usermap=:5: haul rsync doesn't support a rule for numbers without a name"),
        ] {
            assert_eq!(users(text).unwrap_err(), line);
        }
    }
}
