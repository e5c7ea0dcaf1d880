"""The site's page on transfer tools: many small files, and a tree of all sizes with links, from one folder to another on one disk.

The page's tree of 7,247 files, 189 folders and 408 links held 531 GB; here it holds what fits a test machine.
"""

import shutil
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command, remove

# Of the tree: files, folders that hold them (174 in 15 others make the page's 189), links, bytes.
FULL = {"small": (37_760, 6_500, 118), "tree": (7_247, 174, 408, 6_000_000_000)}
QUICK = {"small": (3_776, 6_500, 118), "tree": (725, 19, 41, 200_000_000)}

KEEP = ["--links", "--metadata"]
# On a disk more transfers than this change nothing; what rclone hashes after each copy does.
RCLONE_BEST = ["--transfers", "8", "--checkers", "16", "--ignore-checksum"]
SMALL = [
    ("haul", [], None),
    ("cp -a", [], None),
    ("rsync -a", [], None),
    ("rclone", [], "haul t4 c8"),
    ("haul t4 c8", ["--transfers", "4", "--checkers", "8"], None),
    ("rclone unverified", ["--ignore-checksum"], None),
    ("rclone best", RCLONE_BEST, None),
]
SMALL_NOOP = [
    ("haul", [], None),
    ("rsync -a", [], None),
    ("rclone", [], "haul t4 c8"),
    ("haul t4 c8", ["--transfers", "4", "--checkers", "8"], None),
    ("rclone best", RCLONE_BEST, None),
]
TREE = [
    ("haul", KEEP, None),
    ("cp -a", [], None),
    ("rsync -a", [], None),
    ("rclone", KEEP, None),
    ("rclone best", KEEP + RCLONE_BEST, None),
]
TREE_NOOP = [line for line in TREE if line[0] != "cp -a"]


def cases(quick):
    size = QUICK if quick else FULL
    count, each, folders = size["small"]
    small = (lambda: data.tree(count, each, folders)), 0, count * (each + OVERHEAD)
    count_tree, folders_tree, links, total = size["tree"]
    mixed = (lambda: data.mixed(count_tree, folders_tree, total)), links, total + count_tree * OVERHEAD
    small_text = f"{count:,} files of {each:,} bytes in {folders} directories, directory to directory"
    tree_text = f"{count_tree:,} files of all sizes, {total / 1e9:g} GB, {links} links, directory to directory"
    return [
        FolderCopy("site-small", small_text, *small, SMALL),
        FolderNoop("site-small-noop", "the same again when nothing has changed", *small, SMALL_NOOP),
        FolderCopy("site-tree", tree_text, *mixed, TREE),
        FolderNoop("site-tree-noop", "the same again when nothing has changed", *mixed, TREE_NOOP),
    ]


class FolderCopy(Case):
    """Files, and links, from one folder to a fresh one on the same disk."""

    tools = ("cp", "rsync", "rclone")

    def __init__(self, name, what, make, links, size, table):
        super().__init__()
        self.name, self.what, self.make, self.links, self.size, self.table = name, what, make, links, size, table

    def need(self):
        return 2 * self.size

    def prepare(self, folder, tools, stack):
        self.folder, self.src, self.dst = folder, Path(folder, "src"), Path(folder, "dst")
        self.files = self.make()
        self.linked = data.links(self.files, self.links)
        data.write(self.files, self.src)
        data.make_links(self.linked, self.src)

    def commands(self):
        for label, options, equal in self.table:
            tool = label.split()[0]
            yield Command(label, tool, folder_words(tool, options, self.src, self.dst), equal)

    def fresh(self, _command):
        """The destination does not exist; the source is in the cache."""
        data.fingerprint(self.src)

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.dst, whole, self.linked, times=True)

    def discard(self, _command):
        remove(self.dst)


class FolderNoop(FolderCopy):
    """The same again when nothing has changed."""

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        shutil.copytree(self.src, self.dst, symlinks=True)
        self.before = data.fingerprint(self.dst)

    def check(self, command, run, whole):
        if data.fingerprint(self.dst) != self.before:
            return "files were written although nothing had changed"
        return super().check(command, run, True) if whole else None

    def discard(self, _command):
        """Nothing changed, nothing to discard."""


def folder_words(tool, options, src, dst):
    if tool == "cp":
        return ["-a", str(src), str(dst)]
    if tool == "rsync":
        return ["-a", *options, f"{src}/", f"{dst}/"]
    return ["copy", *options, str(src), str(dst)]
