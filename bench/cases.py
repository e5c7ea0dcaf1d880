"""The cases: what data, which commands, what has to come out."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import data

FULL = {"small": (37_760, 6_500, 118), "many": (1_000, 1_000_000, 10), "big": 5_000_000_000}
QUICK = {"small": (3_776, 6_500, 118), "many": (100, 1_000_000, 10), "big": 300_000_000}
NAMES = ["small-local", "small-local-noop", "up-1000x1MB", "down-1000x1MB", "up-5GB", "down-5GB"]

# A file takes at least a block on disk, and its name and inode something.
OVERHEAD = 4096


@dataclass
class Command:
    """One line of a case's table. `argv` holds {src} and {dst}, and is None where the tool is missing, for the reason `why`."""

    label: str
    argv: list | None
    tool: str
    # Haul's line with the same settings, where that is not plain `haul`.
    equal: str | None = None
    why: str | None = None


def all_cases(size):
    return [
        SmallLocal(size["small"]),
        SmallLocalNoop(size["small"]),
        Up("up-1000x1MB", lambda: data.tree(*size["many"]), size["many"][0] * size["many"][1], MANY + FEWER),
        Down("down-1000x1MB", lambda: data.tree(*size["many"]), size["many"][0] * size["many"][1], MANY + UNVERIFIED),
        Up("up-5GB", lambda: [data.describe("big.bin", 0, size["big"])], size["big"], BIG_UP + FEWER),
        Down("down-5GB", lambda: [data.describe("big.bin", 0, size["big"])], size["big"], BIG_DOWN + UNVERIFIED),
    ]


class SmallLocal:
    """Small files from one folder to a fresh one on the same disk."""

    name = "small-local"
    needs_server = False
    lines = [
        ("haul", [], None),
        ("cp -a", [], None),
        ("rsync -a", [], None),
        ("rclone", [], "haul t4 c8"),
        ("haul t4 c8", ["--transfers", "4", "--checkers", "8"], None),
        ("rclone unverified", ["--ignore-checksum"], None),
    ]

    def __init__(self, size):
        self.count, self.size, self.folders = size

    def need(self):
        return 2 * self.count * (self.size + OVERHEAD)

    def prepare(self, folder, _server):
        self.src, self.dst = Path(folder, "src"), Path(folder, "dst")
        self.files = data.tree(self.count, self.size, self.folders)
        data.write(self.files, self.src)

    def clean_up(self):
        shutil.rmtree(self.src)

    def commands(self, tools):
        for label, options, equal in self.lines:
            yield local_command(tools, label, options, equal)

    def argv(self, command):
        return [word.format(src=self.src, dst=self.dst) for word in command.argv]

    def environment(self, server):
        return environment(self.src.parent, server)

    def fresh(self, _command):
        """The destination does not exist; the source is in the cache."""
        data.fingerprint(self.src)

    def check(self, _command, whole):
        return data.check_folder(self.files, self.dst, whole)

    def discard(self, _command):
        shutil.rmtree(self.dst, ignore_errors=True)


class SmallLocalNoop(SmallLocal):
    """The same again when nothing has changed."""

    name = "small-local-noop"
    lines = [
        ("haul", [], None),
        ("rsync -a", [], None),
        ("rclone", [], "haul t4 c8"),
        ("haul t4 c8", ["--transfers", "4", "--checkers", "8"], None),
    ]

    def prepare(self, folder, server):
        super().prepare(folder, server)
        shutil.copytree(self.src, self.dst)
        self.before = data.fingerprint(self.dst)

    def check(self, _command, whole):
        if data.fingerprint(self.dst) != self.before:
            return "files were written although nothing had changed"
        return super().check(_command, True) if whole else None

    def discard(self, _command):
        """Nothing changed, nothing to discard."""

    def clean_up(self):
        super().clean_up()
        shutil.rmtree(self.dst)


class Remote:
    """Between a folder and a bucket on loopback."""

    needs_server = True

    def __init__(self, name, make, size, lines):
        self.name, self.make, self.bytes, self.lines = name, make, size, lines

    def need(self):
        # Source and destination; a server assembles parts without a second copy, the rest is slack.
        return int(2.1 * self.bytes)

    def prepare(self, folder, server):
        self.server, self.folder, self.files = server, Path(folder, "files"), self.make()

    def environment(self, server):
        return environment(self.folder.parent, server)


class Up(Remote):
    """From a folder into a fresh bucket."""

    bucket = "fresh"

    def prepare(self, folder, server):
        super().prepare(folder, server)
        data.write(self.files, self.folder)

    def clean_up(self):
        shutil.rmtree(self.folder)

    def commands(self, tools):
        for label, tool, options, equal in self.lines:
            there = f"s3://{self.bucket}/" if tool == "s5cmd" else f"bench:{self.bucket}"
            yield remote_command(tools, label, tool, options, equal, f"{self.folder}/", there)

    def argv(self, command):
        return command.argv

    def fresh(self, _command):
        self.server.create(self.bucket)

    def check(self, _command, whole):
        return data.check_bucket(self.files, self.server, self.bucket, whole)

    def discard(self, _command):
        self.server.drop(self.bucket)


class Down(Remote):
    """From a bucket into a fresh folder."""

    bucket = "stored"

    def prepare(self, folder, server):
        super().prepare(folder, server)
        server.create(self.bucket)
        data.upload(self.files, server, self.bucket)

    def clean_up(self):
        self.server.drop(self.bucket)

    def commands(self, tools):
        for label, tool, options, equal in self.lines:
            there = f"s3://{self.bucket}/*" if tool == "s5cmd" else f"bench:{self.bucket}"
            yield remote_command(tools, label, tool, options, equal, there, f"{self.folder}/")

    def argv(self, command):
        return command.argv

    def fresh(self, _command):
        """The folder does not exist."""

    def check(self, _command, whole):
        return data.check_folder(self.files, self.folder, whole)

    def discard(self, _command):
        shutil.rmtree(self.folder, ignore_errors=True)


# rclone without the hashes that haul does not compute either: the MD5 that it stores with uploads, and the SHA-256 in the
# signature of a body, which TLS would make needless.
FEWER_HASHES = ["--s3-disable-checksum", "--s3-use-unsigned-payload=true", "--ignore-checksum"]

# Label, tool, options, haul's line with the same settings.
MANY = [
    ("haul", "haul", [], None),
    ("rclone", "rclone", [], "haul t4"),
    ("haul t4", "haul", ["--transfers", "4"], None),
    ("rclone t16", "rclone", ["--transfers", "16"], "haul t16"),
    ("haul t16", "haul", ["--transfers", "16"], None),
    ("rclone t32", "rclone", ["--transfers", "32"], None),
    ("s5cmd", "s5cmd", [], None),
]
BIG_UP = [
    ("haul", "haul", [], None),
    ("rclone", "rclone", [], "haul s4 5M"),
    ("haul s4 5M", "haul", ["--multi-thread-streams", "4", "--s3-chunk-size", "5M"], None),
    ("rclone s16 16M", "rclone", ["--s3-upload-concurrency", "16", "--s3-chunk-size", "16M"], "haul s16 16M"),
    ("haul s16 16M", "haul", ["--multi-thread-streams", "16", "--s3-chunk-size", "16M"], None),
    ("s5cmd", "s5cmd", [], None),
]
BIG_DOWN = [
    ("haul", "haul", [], None),
    ("rclone", "rclone", [], "haul s4"),
    ("haul s4", "haul", ["--multi-thread-streams", "4"], None),
    ("rclone s16", "rclone", ["--multi-thread-streams", "16"], "haul s16"),
    ("haul s16", "haul", ["--multi-thread-streams", "16"], None),
    ("s5cmd", "s5cmd", [], None),
]


# Controls: what is left of a difference when both leave out the hashes.
FEWER = [("rclone fewer hashes", "rclone", FEWER_HASHES, None)]
UNVERIFIED = [
    ("rclone unverified", "rclone", ["--ignore-checksum"], "haul unverified"),
    ("haul unverified", "haul", ["--ignore-checksum"], None),
]


def local_command(tools, label, options, equal):
    tool = label.split()[0]
    path = getattr(tools, tool)
    if not path:
        return Command(label, None, tool, why=tools.missing[tool])
    if tool == "cp":
        return Command(label, [path, "-a", "{src}", "{dst}"], tool)
    if tool == "rsync":
        return Command(label, [path, "-a", "{src}/", "{dst}/"], tool)
    return Command(label, [path, "copy", *options, "{src}", "{dst}"], tool, equal)


def remote_command(tools, label, tool, options, equal, src, dst):
    path = getattr(tools, tool)
    if not path:
        return Command(label, None, tool, why=tools.missing[tool])
    if tool == "s5cmd":
        # Its own account of every file would be written otherwise.
        return Command(label, [path, "--log", "error", "cp", src, dst], tool)
    return Command(label, [path, "copy", *options, src, dst], tool, equal)


def environment(home, server):
    """Nothing of the user's own settings reaches the tools."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"HOME": str(home)} | (server.environment() if server else {})
