"""The video maker's text: a sync in which 122 large files of 3,564 changed, then one in which nothing did.

Its 59 GiB are scaled down. What changed is there in an older, shorter version, which costs the tools what any other would:
none of them compares content here.
"""

import os
import shutil
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command

FOLDERS = 96
FULL = {"files": 3_564, "changed": 122, "large": 48_000_000, "small": 20_000}
QUICK = FULL | {"large": 2_400_000, "small": 2_000}
# What the changed files hold before a run.
OLD_SIZE, OLD_TIME_NS = 100_000, 1_500_000_000_000_000_000

FLAGS = ["--exclude=**/._*", "--exclude=.fcpcache/**", "--multi-thread-streams=32", "--links", "--metadata"]
TABLE = [
    ("haul", "haul", ["sync", *FLAGS]),
    ("rsync -a", "rsync", ["-a", "--delete", "--exclude=._*", "--exclude=.fcpcache/"]),
    ("rclone", "rclone", ["sync", *FLAGS]),
    ("rclone best", "rclone", ["sync", *FLAGS, "--transfers", "8", "--checkers", "16", "--ignore-checksum"]),
    ("cp -a -u", "cp", ["-a", "-u"]),
]


def cases(quick):
    size = QUICK if quick else FULL
    return [Lan("lan-changed", size), LanNoop("lan-noop", size)]


class Lan(Case):
    """A sync after the large files have changed."""

    tools = ("rsync", "rclone", "cp")

    def __init__(self, name, size):
        super().__init__()
        self.name, self.size = name, size
        self.what = f"sync of {size['files']:,} files, of which {size['changed']} of {size['large'] / 1e6:g} MB changed, directory to directory"

    def need(self):
        size = self.size
        return 2 * (size["changed"] * size["large"] + size["files"] * (size["small"] + OVERHEAD))

    def prepare(self, folder, tools, stack):
        self.folder, self.src, self.dst = folder, Path(folder, "src"), Path(folder, "dst")
        changed = self.size["changed"]
        step = self.size["files"] // changed
        self.files = []
        for number in range(self.size["files"]):
            large = number % step == 0 and number // step < changed
            key = f"project-{number % FOLDERS // 8:02}/day-{number % FOLDERS:03}/{'clip' if large else 'note'} {number:05}.mov"
            self.files.append(data.describe(key, number, self.size["large" if large else "small"]))
        self.changed = [file.key for file in self.files if file.size == self.size["large"]]
        data.write(self.files, self.src)
        shutil.copytree(self.src, self.dst, ignore=lambda _, names: [name for name in names if name.startswith("clip")])

    def commands(self):
        for label, tool, words in TABLE:
            src = f"{self.src}/." if tool == "cp" else f"{self.src}/"
            yield Command(label, tool, [*words, src, f"{self.dst}/"])

    def fresh(self, _command):
        """The changed files are old again; the source is in the cache."""
        for key in self.changed:
            path = Path(self.dst, key)
            path.unlink(missing_ok=True)
            path.write_bytes(bytes(OLD_SIZE))
            os.utime(path, ns=(OLD_TIME_NS, OLD_TIME_NS))
        data.fingerprint(self.src)

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.dst, whole, times=True)


class LanNoop(Lan):
    """A sync when nothing has changed."""

    def __init__(self, name, size):
        super().__init__(name, size)
        self.what = "the same sync again when nothing has changed"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        for key in self.changed:
            shutil.copy2(Path(self.src, key), Path(self.dst, key))
        self.before = data.fingerprint(self.dst)

    def fresh(self, _command):
        """Unchanged since the last run."""

    def check(self, command, run, whole):
        if data.fingerprint(self.dst) != self.before:
            return "files were written although nothing had changed"
        return super().check(command, run, True) if whole else None
