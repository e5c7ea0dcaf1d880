//! The fields of one name's line, as the letters of `--out-format` and `--log-file-format` name them.

use super::{Lines, State, TransferDirection, plain};
use crate::{
    format::{self, Fields, number, shown},
    path_args::clean,
};
use haul_core::{Key, Mtime, Posix, attributes, compare::FileType, event::Facts, links::MUNGED};
/// One name for `--out-format`.
pub(super) struct Item<'a> {
    pub(super) lines: &'a Lines,
    pub(super) state: &'a State,
    pub(super) key: &'a Key,
    pub(super) what: FileType,
    pub(super) letters: String,
    pub(super) size: u64,
    pub(super) facts: &'a Facts,
}

impl Item<'_> {
    /// The path by which the source was typed.
    fn typed(&self) -> Option<Vec<u8>> {
        let Some(typed) = self.state.place.typed.as_ref() else {
            // As rsync's receiver tells it: by its name below the destination.
            let name = plain(self.state, self.key);
            let name = name.strip_suffix(b"/").unwrap_or(&name);
            return Some(if name.is_empty() { b".".to_vec() } else { name.to_vec() });
        };
        let below = self.state.place.one.as_ref().unwrap_or(self.key).path();
        // Files that only the destination has are under no path of the source.
        let dir = if self.is_deleted() { clean(&self.state.place.prefix) } else { clean(typed) };
        Some(match (&dir[..], below) {
            (b"", b"") => b".".to_vec(),
            (b"", below) => below.to_vec(),
            (dir, b"") if self.state.place.prefix.is_empty() => [dir, b"/."].concat(),
            (dir, b"") => dir.to_vec(),
            (dir, below) => [dir, b"/", below].concat(),
        })
    }

    /// Only the destination has it: of its attributes nothing is known here.
    fn is_deleted(&self) -> bool {
        self.letters.starts_with('*')
    }

    /// Permissions as they are sent.
    fn mode(&self) -> Option<u32> {
        let mode = self.posix()?.mode;
        let changes = if self.what == FileType::Link { &[][..] } else { &self.lines.look.chmod[..] };
        Some(attributes::changed(changes, mode, self.what == FileType::Dir))
    }

    /// Bytes; of a directory its own, where that is known.
    fn length(&self) -> u64 {
        match self.what {
            FileType::Dir => self.posix().map_or(0, |posix| posix.size),
            _ => self.size,
        }
    }

    fn posix(&self) -> Option<&Posix> {
        self.facts.posix.as_deref()
    }

    /// Where a symlink here points.
    fn target(&self) -> Option<&[u8]> {
        let target = self.posix()?.target.as_deref()?;
        let plain = target.strip_prefix(MUNGED).filter(|_| self.lines.look.munges);
        Some(plain.unwrap_or(target))
    }
}

impl Fields for Item<'_> {
    fn field(&self, letter: char, human: u8) -> Option<Vec<u8>> {
        let text = |text: String| Some(text.into_bytes());
        let time = |secs: i64| {
            let at = jiff::Timestamp::new(secs, 0).ok()?.to_zoned(jiff::tz::TimeZone::system());
            Some(at.strftime("%Y/%m/%d-%H:%M:%S").to_string().into_bytes())
        };
        let or_empty = |text: Option<Vec<u8>>| Some(text.unwrap_or_default());
        match letter {
            'i' => text(self.letters.clone()),
            'n' => Some(self.lines.name(self.state, self.key, self.what)),
            'L' if self.state.link_to.is_some() => {
                or_empty(self.state.link_to.as_ref().map(|to| [b" => ", &to[..]].concat()))
            }
            'L' => or_empty(self.target().map(|to| [b" -> ", &shown(to, self.lines.look.raw_bytes)[..]].concat())),
            'f' => or_empty(self.typed().map(|path| {
                let path = path.strip_prefix(b"/").unwrap_or(&path);
                shown(path, self.lines.look.raw_bytes)
            })),
            'l' => text(number(self.length(), human)),
            'b' => {
                let moved = self.letters.starts_with(['>', '<']) && !self.lines.look.dry_run;
                text(number(if moved { self.size } else { 0 }, human))
            }
            'o' if self.is_deleted() => text("del.".into()),
            'o' => text(if self.lines.look.way == TransferDirection::Receives { "recv" } else { "send" }.into()),
            'M' if self.is_deleted() => or_empty(time(0)),
            'B' if self.is_deleted() => text("-".repeat(9)),
            'G' if !self.lines.look.kept.group => text("DEFAULT".into()),
            'U' if !self.lines.look.owner => text("0".into()),
            'U' | 'G' if self.is_deleted() => text("0".into()),
            // Of rsync's daemon.
            'm' => text(String::new()),
            // Of what rsync sends to find matching blocks.
            'c' => text("0".into()),
            'C' => text(" ".repeat(32)),
            'M' => or_empty(self.facts.mtime.and_then(|mtime| time(mtime.secs()))),
            'B' => or_empty(self.mode().map(|mode| format::permissions(mode).into_bytes())),
            'U' => or_empty(self.posix().map(|posix| posix.uid.to_string().into_bytes())),
            'G' => or_empty(self.posix().map(|posix| posix.gid.to_string().into_bytes())),
            'p' => text(std::process::id().to_string()),
            't' => {
                let now = Mtime(jiff::Timestamp::now().as_nanosecond());
                let at = jiff::Timestamp::new(now.secs(), 0).ok()?.to_zoned(jiff::tz::TimeZone::system());
                text(at.strftime("%Y/%m/%d %H:%M:%S").to_string())
            }
            _ => None,
        }
    }
}
