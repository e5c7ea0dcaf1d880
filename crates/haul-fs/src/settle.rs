//! Files of this store that were written under other names get their own.

use super::{
    Local, attributes,
    dir::Dir,
    error::{check_file, fail, fail_write},
    meta, publish,
    read::regular,
};
use haul_core::{Result, keep::Keep, key::parent, plan::Replace};
use haul_store::{SettleItem, disk::Abandoned};

const OP: &str = "copy";

/// See [`haul_store::Inodes::settle`]; runs on the pool.
pub(super) fn settle(local: &Local, items: &[SettleItem], abandoned: &Abandoned) -> Vec<Result<()>> {
    // The directory of the last file.
    let mut last: Option<(&[u8], Dir)> = None;
    let each = items.iter().map(|item| {
        abandoned.check(OP, &item.to)?;
        match one(local, item, &mut last) {
            Err(error)
                if attributes::denied(&error, item.keep.as_deref()) && attributes::open_up(&local.root, &item.to) =>
            {
                one(local, item, &mut last)
            }
            answer => answer,
        }
    });
    each.collect()
}

fn one<'a>(local: &Local, item: &'a SettleItem, last: &mut Option<(&'a [u8], Dir)>) -> Result<()> {
    check_file(OP, &item.from)?;
    check_file(OP, &item.to)?;
    let unfound = |errno| fail(OP, &item.from, errno);
    let (key, name) = (parent(item.from.as_bytes()), item.from.name());
    let from = match last {
        Some((known, dir)) if *known == key => dir.clone(),
        _ => {
            let dir = local.root.dir(key).map_err(unfound)?;
            *last = Some((key, dir.clone()));
            dir
        }
    };
    regular(OP, &item.from, &meta::facts_at(&from, name, false, meta::FACTS).map_err(unfound)?)?;
    let keep = item.keep.as_deref();
    let (_, settled) = publish::in_dir_or_errno(&local.root, OP, &item.to, |dir| {
        if !keep.is_some_and(Keep::private) {
            attributes::keep_mode(keep, (&from, name), (dir, item.to.name()))?;
        }
        match item.replace {
            Replace::Absent => publish::rename_new((&from, name), (dir, item.to.name())),
            _ => rustix::fs::renameat(&from, name, dir, item.to.name()),
        }
    })?;
    settled.map_err(|errno| fail_write(OP, &item.to, errno))
}
