"""Folder to bucket and back on real servers, MinIO and versitygw on loopback without latency: what a tool costs by itself."""

from pathlib import Path

import data
from cases.common import Case, Command, remove
from server import Minio, Versity

FULL = {"many": (1_000, 1_000_000, 10), "big": 5_000_000_000, "one": 2_000_000_000}
QUICK = {"many": (100, 1_000_000, 10), "big": 300_000_000, "one": 100_000_000}


def cases(quick):
    size = QUICK if quick else FULL
    many = (lambda: data.tree(*size["many"])), size["many"][0] * size["many"][1]
    big = (lambda: [data.describe("big.bin", 0, size["big"])]), size["big"]
    one = (lambda: [data.describe("one.bin", 0, size["one"])]), size["one"]
    return [
        Up("versity-up-1000x1MB", *many, PLAIN, Versity),
        Down("versity-down-1000x1MB", *many, PLAIN, Versity),
        Down("versity-down-2GB", *one, PLAIN + UNVERIFIED_PLAIN, Versity),
        Up("up-1000x1MB", *many, MANY + FEWER),
        Down("down-1000x1MB", *many, MANY + UNVERIFIED),
        Up("up-5GB", *big, BIG_UP + FEWER),
        Down("down-5GB", *big, BIG_DOWN + UNVERIFIED),
    ]


class Remote(Case):
    """Between a folder and a bucket on loopback."""

    tools = ("rclone", "s5cmd")

    def __init__(self, name, make, size, table, server=Minio):
        super().__init__()
        self.name, self.make, self.bytes, self.table, self.kind = name, make, size, table, server
        self.servers = (server.program,)
        self.what = self.way.format(server.title)

    def need(self):
        # Source and destination; a server assembles parts without a second copy, the rest is slack.
        return int(2.1 * self.bytes)

    def prepare(self, folder, tools, stack):
        self.server = stack.enter_context(self.kind(tools.paths[self.kind.program], folder / "server"))
        self.endpoints = [self.server]
        self.folder, self.local, self.files = folder, Path(folder, "files"), self.make()

    def environment(self, command):
        return super().environment(command) | self.server.remote("bench") | self.server.aws()


class Up(Remote):
    """From a folder into a fresh bucket."""

    way = "directory to a fresh bucket of {} on loopback"
    bucket = "fresh"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        data.write(self.files, self.local)

    def commands(self):
        for label, tool, options, equal in self.table:
            there = f"s3://{self.bucket}/" if tool == "s5cmd" else f"bench:{self.bucket}"
            yield Command(label, tool, copy_words(tool, options, f"{self.local}/", there), equal)

    def fresh(self, _command):
        self.server.create(self.bucket)

    def check(self, _command, _run, whole):
        return data.check_bucket(self.files, self.server, self.bucket, whole)

    def discard(self, _command):
        self.server.drop(self.bucket)


class Down(Remote):
    """From a bucket into a fresh folder."""

    way = "bucket of {} on loopback to a fresh directory"
    bucket = "stored"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.server.create(self.bucket)
        data.upload(self.files, self.server, self.bucket)

    def commands(self):
        for label, tool, options, equal in self.table:
            there = f"s3://{self.bucket}/*" if tool == "s5cmd" else f"bench:{self.bucket}"
            yield Command(label, tool, copy_words(tool, options, there, f"{self.local}/"), equal)

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.local, whole)

    def discard(self, _command):
        remove(self.local)


def copy_words(tool, options, src, dst):
    if tool == "s5cmd":
        # Otherwise it would print a line for each file.
        return ["--log", "error", "cp", *options, src, dst]
    return ["copy", *options, src, dst]


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

# Each tool as it comes.
PLAIN = [("haul", "haul", [], None), ("rclone", "rclone", [], None), ("s5cmd", "s5cmd", [], None)]
UNVERIFIED_PLAIN = [("haul unverified", "haul", ["--ignore-checksum"], None)]
