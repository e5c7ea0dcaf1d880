//! Combined meaning of the options: values for the engine and the stores.

use super::{
    format::PreservedAttributes,
    info::{Info, LevelOptions},
    options::Options,
};
use haul_core::{
    job::{CompareBy, DeleteWhen},
    links::SourceLinks,
};
use haul_store::LinkRules;

impl Options {
    /// Levels of output.
    pub fn info_levels(&self) -> Info {
        let Options { quiet, verbose, progress, stats, .. } = *self;
        Info::of(LevelOptions { quiet, verbose, progress, stats, levels: &self.info })
    }

    /// How to compare.
    pub fn compare(&self) -> CompareBy {
        match self {
            // Together, rsync looks at them in this order.
            Options { checksum: true, .. } => CompareBy::Checksum,
            Options { size_only: true, .. } => CompareBy::SizeOnly,
            Options { ignore_times: true, .. } => CompareBy::Never,
            _ => CompareBy::SizeAndTime,
        }
    }

    /// Attributes that are kept, and so shown when they differ; only root can give files away.
    pub fn kept(&self, root: bool) -> PreservedAttributes {
        PreservedAttributes {
            times: self.times,
            dir_times: self.times && !self.omit_dir_times && !(self.backup && self.backup_dir.is_none()),
            link_times: self.times && !self.omit_link_times,
            perms: self.perms,
            executability: self.executability && !self.perms,
            owner: self.owner && root,
            group: self.group,
            atimes: self.atimes,
            acls: self.acls,
            xattrs: self.xattrs,
            checksum: self.checksum,
        }
    }

    /// Symlinks of the source that are shown as their targets; `above` directories of the transfer are above its
    /// folder.
    pub fn link_rules(&self, above: usize) -> Option<LinkRules> {
        let follow_out = self.copy_unsafe_links.then_some(above);
        let some = self.copy_dirlinks || self.copy_unsafe_links || self.munge.changes();
        some.then_some(LinkRules {
            follow_dirs: self.copy_dirlinks,
            follow_out,
            munge: self.munge,
            ..LinkRules::default()
        })
    }

    /// Which symlinks a copy between disks follows, and what happens to their targets.
    pub fn source_links(&self) -> SourceLinks {
        let (dirs, files) = (self.copy_dirlinks, self.copy_unsafe_links || self.copy_links);
        SourceLinks { follow_dirs: dirs || files, follow_files: files, munge: self.munge }
    }

    /// When to delete. Where links to directories stay, a name behind one may be another name of what is to be deleted: only
    /// what is looked at after the deletions is sure to be there in the end, and its source to be no only copy.
    pub fn delete_when(&self) -> Option<DeleteWhen> {
        self.delete.map(|when| if self.keep_dirlinks { DeleteWhen::Before } else { when })
    }

    /// How deep sources are listed.
    pub fn max_depth(&self) -> Option<usize> {
        let named = self.files_from.is_some() || self.names.is_some();
        (!self.recursive && !named && !self.relative()).then_some(1)
    }

    /// True for deletions that go by what the destination holds when all transfers are over.
    pub fn deletes_apart(&self) -> bool {
        self.delete_when() == Some(DeleteWhen::After) && !self.delete_delay
    }

    /// Ending of names that are kept.
    pub fn backup_suffix(&self) -> Option<String> {
        let usual = if self.backup_dir.is_none() { "~" } else { "" };
        self.backup.then(|| self.suffix.clone().unwrap_or_else(|| usual.into())).filter(|suffix| !suffix.is_empty())
    }

    /// Paths as typed are kept.
    pub fn relative(&self) -> bool {
        self.relative == Some(true)
    }
}
