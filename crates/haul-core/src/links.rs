//! Symlinks as text: where they lead, as far as the text shows, and how targets are made unusable. Pure: nothing is
//! looked up.

use serde::{Deserialize, Serialize};

/// Prefix that makes a symlink's target unusable; rsync's (`--munge-links`).
pub const MUNGED: &[u8] = b"/rsyncd-munged/";

/// How a source's symlinks are presented, so that a copy by another way presents them the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceLinks {
    /// Those to directories that are shown as directories are followed.
    pub follow_dirs: bool,
    /// Those that are shown as files are followed.
    pub follow_files: bool,
    /// Change made to the targets of symlinks that are kept.
    pub munge: Munge,
}

/// Change made to symlink targets between source and destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Munge {
    /// [`MUNGED`] is taken off those that begin with it; before
    pub off: bool,
    /// it is put before all.
    pub on: bool,
}

impl Munge {
    /// True when targets may change.
    pub fn changes(self) -> bool {
        self.off || self.on
    }

    /// The new target. A bare [`MUNGED`] stays, since nothing would be left.
    pub fn target(self, target: Vec<u8>) -> Vec<u8> {
        let off = target.strip_prefix(MUNGED).filter(|rest| self.off && !rest.is_empty());
        match (off, self.on) {
            (rest, true) => [MUNGED, rest.unwrap_or(&target)].concat(),
            (Some(rest), false) => rest.to_vec(),
            (None, false) => target,
        }
    }
}

/// True when a symlink with this `target`, `depth` directories below the top of a tree, may lead out of the tree; rsync's
/// rule (`--safe-links`): absolute and empty targets do, and `..` is allowed only at the beginning.
pub fn leads_out(target: &[u8], mut depth: usize) -> bool {
    if target.is_empty() || target.starts_with(b"/") || (target.len() > 3 && target.ends_with(b"/..")) {
        return true;
    }
    let mut below = false;
    for part in target.split(|b| *b == b'/') {
        match (part, depth.checked_sub(1)) {
            (b"..", Some(above)) if !below => depth = above,
            (b"..", _) => return true,
            (b"", _) if !below => {}
            _ => below = true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_munged_and_come_back() {
        let is = |off, on, target: &str| String::from_utf8(Munge { off, on }.target(target.into())).unwrap();
        assert_eq!(is(false, true, "../a"), "/rsyncd-munged/../a");
        assert_eq!(is(true, false, "/rsyncd-munged/../a"), "../a");
        assert_eq!(is(true, false, "../a"), "../a");
        assert_eq!(is(false, true, "/rsyncd-munged/a"), "/rsyncd-munged//rsyncd-munged/a");
        assert_eq!(is(true, true, "/rsyncd-munged/a"), "/rsyncd-munged/a");
        assert_eq!(is(true, true, "a"), "/rsyncd-munged/a");
        assert_eq!(is(true, false, "/rsyncd-munged/"), "/rsyncd-munged/");
        assert_eq!(is(false, false, "/rsyncd-munged/a"), "/rsyncd-munged/a");
        assert!(Munge { off: true, on: false }.changes() && !Munge::default().changes());
    }

    #[test]
    fn symlinks_are_unsafe_as_in_rsync() {
        let out = ["", "/etc/passwd", "../..", "d/../a", "./../a", "..", "../a", "a/..", "../../../x", "d/..//x"];
        for target in out {
            assert!(leads_out(target.as_bytes(), 0), "{target}");
        }
        for (target, depth) in [("a", 0), ("a/b", 0), ("../a", 1), ("..//a", 1), ("../../a", 2), ("..", 1), ("a/.", 0)]
        {
            assert!(!leads_out(target.as_bytes(), depth), "{target} {depth}");
        }
        assert!(leads_out(b"../../a", 1) && leads_out(b"../x/../a", 3));
    }
}
