//! Where symlinks lead, as far as their text tells. Pure: nothing is looked up.

/// True when a symlink that holds `target`, `depth` directories below the top of a tree, may lead out of the tree; rsync's
/// rule (`--safe-links`): absolute and empty targets do, and `..` counts only at the beginning.
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
    fn what_leads_out_is_what_rsync_takes_for_unsafe() {
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
