//! Users and groups of this machine by name.

use haul_core::keep::IdMap;

/// Parses `--chown`.
///
/// Errors: an unknown user or group.
pub fn chown(text: &str) -> Result<(IdMap, IdMap), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err(format!("--chown {text:?} names nobody: write USER:GROUP, USER or :GROUP"));
    }
    let map = |id: Option<u32>| id.map_or_else(IdMap::default, IdMap::all);
    Ok((map(id("user", user, uid_of)?), map(id("group", group, gid_of)?)))
}

/// The number of a user of this machine, if there is one of this name.
pub fn uid_of(name: &str) -> Result<Option<u32>, String> {
    Ok(nix::unistd::User::from_name(name).map_err(|why| why.to_string())?.map(|user| user.uid.as_raw()))
}

/// The number of a group, by name.
pub fn gid_of(name: &str) -> Result<Option<u32>, String> {
    Ok(nix::unistd::Group::from_name(name).map_err(|why| why.to_string())?.map(|group| group.gid.as_raw()))
}

/// A number, or what a name stands for on this machine; `None` for no name.
fn id(what: &str, name: &str, find: impl Fn(&str) -> Result<Option<u32>, String>) -> Result<Option<u32>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    // The highest number means "leave it" to the kernel.
    if let Some(id) = name.parse().ok().filter(|id| *id != u32::MAX) {
        return Ok(Some(id));
    }
    match find(name) {
        Ok(Some(id)) => Ok(Some(id)),
        Ok(None) => Err(format!("--chown: no {what} {name:?} on this machine: give a number")),
        Err(why) => Err(format!("--chown: can't find out who {name:?} is: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        for (text, ids) in [
            ("root:7", (Some(0), Some(7))),
            ("5", (Some(5), None)),
            ("root:", (Some(0), None)),
            (":root", (None, Some(0))),
        ] {
            let (users, groups) = chown(text).unwrap();
            assert_eq!((users.of(1), groups.of(1)), ids, "{text}");
        }
        for (text, message) in [
            (":", "--chown \":\" names nobody: write USER:GROUP, USER or :GROUP"),
            ("no-such-user", "--chown: no user \"no-such-user\" on this machine: give a number"),
            ("0:no-such-group", "--chown: no group \"no-such-group\" on this machine: give a number"),
        ] {
            assert_eq!(chown(text).unwrap_err(), message);
        }
    }
}
