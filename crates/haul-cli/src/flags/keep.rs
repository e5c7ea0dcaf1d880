//! Flags about attributes of files, of the commands that copy; they become a [`Keep`].

use crate::error::usage;
use anyhow::Result;
use haul_core::{chmod, keep::Keep};
use haul_fs::owners::chown;

/// What of a file is kept between file systems, beside its bytes and modification time.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Attributes, between file systems")]
pub struct KeepFlags {
    /// Keep permissions, owner, group, symlinks, devices, FIFOs, sockets and empty directories
    ///
    /// Same as rsync's -a (-rlptgoD). As in rsync, --acls, --xattrs and --hard-links are separate flags.
    #[arg(long, short = 'a')]
    pub archive: bool,
    /// Keep permissions, including set-id and sticky bits
    #[arg(long, short = 'p')]
    pub perms: bool,
    /// Keep whether files are executable, when --perms is off
    #[arg(long)]
    pub executability: bool,
    /// Keep the owner (root only)
    #[arg(long)]
    pub owner: bool,
    /// Keep the group
    #[arg(long)]
    pub group: bool,
    /// Keep access times
    #[arg(long)]
    pub atimes: bool,
    /// Keep extended attributes, including file capabilities
    #[arg(long, short = 'X')]
    pub xattrs: bool,
    /// Keep ACLs (POSIX and NFSv4) and permissions
    #[arg(long, short = 'A')]
    pub acls: bool,
    /// Keep hard links
    #[arg(long, short = 'H')]
    pub hard_links: bool,
    /// Copy devices (root only)
    #[arg(long)]
    pub devices: bool,
    /// Copy FIFOs and sockets
    #[arg(long)]
    pub specials: bool,
    /// Change permissions of copied files: u+w, D755,F644, Du=rwx,go= (may repeat)
    #[arg(long, value_name = "CHANGES")]
    pub chmod: Vec<String>,
    /// Set owner, group or both, by name or number: USER:GROUP, USER, :GROUP
    #[arg(long, value_name = "USER:GROUP")]
    pub chown: Option<String>,
    /// Keep owners and groups by number, not by name (always the case between file systems)
    #[arg(long)]
    pub numeric_ids: bool,
}

/// Attributes to keep, by the flags.
///
/// Errors: permission changes that can't be parsed, users and groups that are unknown here.
pub fn keep(flags: &KeepFlags) -> Result<Keep> {
    let all = if flags.archive { Keep::archive() } else { Keep::default() };
    let umask = haul_fs::umask();
    let mut changes = Vec::new();
    for text in &flags.chmod {
        changes.extend(chmod::parse(text, umask).map_err(|why| usage(format!("--chmod: {why}")))?);
    }
    let (users, groups) = flags.chown.as_deref().map_or(Ok(Default::default()), chown).map_err(usage)?;
    Ok(Keep {
        perms: all.perms || flags.perms,
        executability: flags.executability,
        owner: all.owner || flags.owner,
        group: all.group || flags.group,
        atime: flags.atimes,
        xattrs: flags.xattrs,
        acls: flags.acls,
        devices: all.devices || flags.devices,
        specials: all.specials || flags.specials,
        hard_links: flags.hard_links,
        chmod: changes,
        users,
        groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_rsyncs() {
        let archive = keep(&KeepFlags { archive: true, ..KeepFlags::default() }).unwrap();
        assert_eq!(archive, Keep::archive());
        assert!(!keep(&KeepFlags::default()).unwrap().any());
    }
}
