"""What local copies may cost: system calls of small files, a million files in a thousand folders and in one, holes, shared blocks."""

import hashlib
import os
import subprocess
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command, cannot, remove
from cases.site import folder_words

FULL = {"calls": (37_760, 6_500, 118), "deep": (1_000, 1_000), "flat": 1_000_000, "sparse": 10_000_000_000, "shared": 1_200_000_000}
QUICK = {"calls": (1_180, 6_500, 118), "deep": (20, 1_000), "flat": 3_000, "sparse": 500_000_000, "shared": 60_000_000}
# Of the sparse file one part in a hundred is data, in pieces of this size.
PIECE = 64 << 10
TINY = 100
TIME_NS = 1_600_000_000_000_000_000
# Of a file system in a file: room for two copies and its own structures (xfs wants 300 MB at least).
IMAGE_OVERHEAD = 400_000_000


def cases(quick):
    size = QUICK if quick else FULL
    folders, each = size["deep"]
    return [
        Calls(size["calls"]),
        Deep(folders, each),
        Flat(size["flat"]),
        Sparse(size["sparse"]),
        Shared("xfs", size["shared"]),
        Shared("btrfs", size["shared"]),
    ]


class Disks(Case):
    """From the folder `src` to the folder `dst` beside it."""

    tools = ("cp", "rsync")

    def place(self, folder):
        self.folder, self.src, self.dst = folder, Path(folder, "src"), Path(folder, "dst")

    def commands(self):
        yield Command("haul", "haul", folder_words("haul", [], self.src, self.dst))
        yield Command("cp -a", "cp", folder_words("cp", [], self.src, self.dst))
        yield Command("rsync -a", "rsync", folder_words("rsync", [], self.src, self.dst))

    def discard(self, _command):
        remove(self.dst)


class Calls(Disks):
    """Small files under strace, which counts system calls and slows all down: only the counts mean something."""

    name = "disks-calls"
    servers = ("strace",)
    columns = (("system calls a file", "calls_per_file"), ("without waiting", "own_calls_per_file"))
    runs = 1

    def __init__(self, size):
        super().__init__()
        self.count, self.each, self.folders = size
        self.what = f"{self.count:,} files of {self.each:,} bytes, directory to directory, under strace"

    def need(self):
        return 2 * self.count * (self.each + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.place(folder)
        self.out, self.paths = Path(folder, "calls"), tools.paths
        self.files = data.tree(self.count, self.each, self.folders)
        data.write(self.files, self.src)

    def commands(self):
        for command in super().commands():
            if command.tool in self.paths:
                words = ["-f", "-c", "-o", str(self.out), self.paths[command.tool], *command.words]
                yield Command(command.label, "strace", words)

    def check(self, _command, run, whole):
        calls, own = counted(self.out.read_text(encoding="utf-8"))
        run["calls_per_file"], run["own_calls_per_file"] = calls / self.count, own / self.count
        return data.check_folder(self.files, self.dst, whole, times=True)


def counted(text):
    """All system calls in strace's table, and those by which threads don't wait for each other."""
    rows = [line.split() for line in text.splitlines()]
    calls = {row[-1]: int(row[3]) for row in rows if len(row) > 4 and row[3].isdigit() and row[-1] != "total"}
    waiting = sum(calls.get(name, 0) for name in ("futex", "epoll_wait", "sched_yield", "poll", "select", "pselect6"))
    return sum(calls.values()), sum(calls.values()) - waiting


class Deep(Disks):
    """Empty files in many folders, the same on both sides. Measures how long it takes to find that nothing changed."""

    name = "disks-deep-noop"
    tools = ("rsync", "rclone")

    def __init__(self, folders, each):
        super().__init__()
        self.folders, self.each = folders, each
        self.what = f"{folders * each:,} files in {folders:,} directories, nothing has changed"
        # On tmpfs an inode and its name take about a kilobyte of memory.
        self.memory = 2 * folders * each * 1_200

    def prepare(self, folder, tools, stack):
        self.place(folder)
        for side in (self.src, self.dst):
            for number in range(self.folders):
                fill(Path(side, f"folder-{number:05}"), self.each, b"")
        self.before = data.fingerprint(self.dst)

    def commands(self):
        for command in super().commands():
            if command.tool != "cp":
                yield command
        yield Command("rclone", "rclone", folder_words("rclone", [], self.src, self.dst))

    def check(self, _command, _run, _whole):
        return None if data.fingerprint(self.dst) == self.before else "files were written although nothing had changed"

    def discard(self, _command):
        """Nothing changed, nothing to discard."""


class Flat(Disks):
    """Very many small files in one folder."""

    name = "disks-flat"

    def __init__(self, count):
        super().__init__()
        self.count = count
        self.what = f"{count:,} files of {TINY} bytes in one directory, directory to directory"

    def need(self):
        return 2 * self.count * (OVERHEAD + 300)

    def prepare(self, folder, tools, stack):
        self.place(folder)
        fill(self.src, self.count, bytes(range(TINY)))

    def check(self, _command, _run, _whole):
        names = set()
        with os.scandir(self.dst) as entries:
            for entry in entries:
                names.add(entry.name)
                stat = entry.stat()
                if stat.st_size != TINY or stat.st_mtime_ns != TIME_NS:
                    return f"{entry.name} has another size or time"
        return None if names == {name(number) for number in range(self.count)} else f"{len(names)} names, or other ones"


def name(number):
    return f"file {number:07}.txt"


def fill(folder, count, content):
    """Makes so many files of one content and time."""
    folder.mkdir(parents=True)
    place = os.open(folder, os.O_RDONLY)
    try:
        for number in range(count):
            file = os.open(name(number), os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=place)
            os.write(file, content)
            os.utime(file, ns=(TIME_NS, TIME_NS))
            os.close(file)
    finally:
        os.close(place)


class Sparse(Disks):
    """One file of which one part in a hundred is data."""

    name = "disks-sparse"
    columns = (("MB on disk", "allocated_mb"),)

    def __init__(self, size):
        super().__init__()
        self.size, self.pieces = size, size // 100 // PIECE
        self.what = f"one file of {size / 1e9:g} GB, of which {self.pieces * PIECE / 1e6:.0f} MB are data, directory to directory"

    def need(self):
        return 2 * self.pieces * (PIECE + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.place(folder)
        self.src.mkdir()
        with open(self.src / "sparse", "wb") as file:
            file.truncate(self.size)
            for number, content in enumerate(self.content()):
                file.seek(self.at(number))
                file.write(content)
        os.utime(self.src / "sparse", ns=(TIME_NS, TIME_NS))

    def content(self):
        for number in range(self.pieces):
            yield hashlib.sha512(str(number).encode()).digest() * (PIECE // 64)

    def at(self, number):
        """Off the block boundaries, so that there is something to get wrong."""
        return number * (self.size // self.pieces) + 1000

    def commands(self):
        yield from (command for command in super().commands() if command.tool != "rsync")
        yield Command("rsync -aS", "rsync", folder_words("rsync", ["-S"], self.src, self.dst))
        yield cannot("rclone", "writes holes out as zeros")

    def check(self, _command, run, whole):
        copy = self.dst / "sparse"
        stat = copy.stat()
        run["allocated_mb"] = stat.st_blocks * 512 / 1e6
        if (stat.st_size, stat.st_mtime_ns) != (self.size, TIME_NS):
            return "another size or time"
        if stat.st_blocks * 512 > 2 * self.pieces * (PIECE + 2 * OVERHEAD):
            return f"{stat.st_blocks * 512} bytes on disk"
        with open(copy, "rb") as file:
            for number, content in enumerate(self.content()):
                file.seek(self.at(number) - 512)
                if file.read(512) + file.read(PIECE) + file.read(512) != bytes(512) + content + bytes(512):
                    return f"wrong content in piece {number}"
                if not whole and number >= data.SAMPLE:
                    break
        return None


class Shared(Disks):
    """Within one file system that can share blocks, in a file on a loop device; needs root."""

    tools = ("cp",)

    def __init__(self, kind, total):
        super().__init__()
        self.name, self.kind, self.total = f"disks-shared-{kind}", kind, total
        self.what = f"200 files, {total / 1e9:g} GB, directory to directory on {kind} by loop device"
        self.mounted, self.why = None, None

    def need(self):
        return 3 * self.total + IMAGE_OVERHEAD

    def prepare(self, folder, tools, stack):
        self.folder = folder
        image, mounted = Path(folder, "image"), Path(folder, "mounted")
        mounted.mkdir()
        with open(image, "wb") as file:
            file.truncate(3 * self.total + IMAGE_OVERHEAD)
        try:
            for argv in (["mkfs." + self.kind, "-q", str(image)], ["mount", "-o", "loop", str(image), str(mounted)]):
                subprocess.run(argv, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            self.why = f"{self.kind} can't be mounted here: {said.decode(errors='replace').strip().splitlines()[-1]}"
            return
        stack.callback(subprocess.run, ["umount", str(mounted)], check=True)
        self.src, self.dst = mounted / "src", mounted / "dst"
        self.files = data.tree(200, self.total // 200, 10)
        data.write(self.files, self.src)
        subprocess.run(["sync", "-f", str(self.src)], check=True)

    def commands(self):
        if self.why:
            yield Command("haul", "haul", None, why=self.why)
            return
        yield Command("haul", "haul", folder_words("haul", [], self.src, self.dst))
        for reflink in ("never", "always"):
            words = [f"--reflink={reflink}", *folder_words("cp", [], self.src, self.dst)]
            yield Command(f"cp -a --reflink={reflink}", "cp", words)

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.dst, whole, times=True)
