"""Shared by the cases: a command, a case, and the peers' best settings."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import data
from cloud import Cloud

# A file takes at least a block on disk, and its name and inode something.
OVERHEAD = 4096

# What rclone's own documentation recommends for a fast link and many files, and for one large file, with its checks left on.
RCLONE_MANY = ["--transfers", "64", "--checkers", "64", "--fast-list", "--s3-no-check-bucket"]
RCLONE_LARGE_UP = ["--s3-upload-concurrency", "32", "--s3-chunk-size", "16M", "--s3-upload-cutoff", "32M"]
RCLONE_LARGE_DOWN = ["--multi-thread-streams", "32", "--multi-thread-chunk-size", "16M", "--multi-thread-cutoff", "32M"]


@dataclass
class Command:
    """One line of a case's table. `words` follow the program; None where the tool can't do it, for the reason `why`."""

    label: str
    tool: str
    words: list | None
    # Haul's line with the same settings, where that is not plain `haul`.
    equal: str | None = None
    # A point of a curve: `series` at this number of transfers.
    series: str | None = None
    at: int | None = None
    # Too slow for more than one measured run; no warm-up.
    once: bool = False
    why: str | None = None
    # Exit codes that mean success.
    ends: tuple = (0,)
    # Where it runs.
    folder: str | None = None


def cannot(tool, why):
    """A peer that is left out, for a reason that the report gives."""
    return Command(tool, tool, None, why=why)


class Case:
    """Data, commands, and what has to come out. Subclasses say the rest."""

    name = ""
    # One line for the report and the list of cases.
    what = ""
    # Servers that it needs, and the peers beside haul.
    servers = ()
    tools = ()
    # A command that takes longer is stopped, and not tried again.
    limit = 900
    # At most so many measured runs, where one takes long; and seconds that one round takes, as far as that can be said beforehand,
    # without and only with what runs once.
    runs = None
    seconds = None
    seconds_once = 0
    # Bytes of memory that the greediest tool needs.
    memory = 0
    # Further columns of the table: their heading, and the name of the number in a run's record.
    columns = ()

    def __init__(self):
        self.endpoints = []

    def need(self):
        """Bytes of disk space."""
        return 0

    def prepare(self, folder, tools, stack):
        """Makes data and starts servers, which end with `stack`."""

    def clean_up(self):
        """Cleans up whatever is outside of the case's folder."""

    def commands(self):
        return []

    def environment(self, _command):
        """Nothing of the user's own settings reaches the tools."""
        return clean_environment(self.folder)

    def fresh(self, command):
        """Before each run."""

    def output(self, _command):
        """The files for standard output and standard error that the check reads, or None each."""
        return None, None

    def until(self, _command):
        """A function that says when a run has shown what is asked, or None to let it end."""
        return None

    def check(self, command, run, whole):
        """What is wrong with what the command left, or None. May add numbers to the run's record."""

    def discard(self, command):
        """After each run."""


def clean_environment(home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"HOME": str(home)}


class CloudCase(Case):
    """Between a folder and a bucket, or about one bucket, of one cloudsim: the remote `bench:`."""

    servers = ("cloudsim",)
    # Flags of the endpoint that is measured.
    flags = ()

    def prepare(self, folder, tools, stack):
        self.folder, self.program = folder, tools.paths["cloudsim"]
        self.cloud = stack.enter_context(Cloud(self.program, *self.flags))
        self.endpoints = [self.cloud]

    def plain(self):
        """An endpoint without latency or limits, for what must be known beforehand."""
        return Cloud(self.program, "--keep", "sizes")

    @staticmethod
    def prove(plain, bucket):
        """Compares cloudsim's CRC64NVME with the benchmark's own, by which uploads are judged."""
        content = b"".join(data.blocks("probe", 10_000))
        plain.put(bucket, "probe", content, {})
        expected, found = f"10000 {data.crc64nvme(content):016x} probe", plain.stored(bucket)
        if found != [expected]:
            raise RuntimeError(f"cloudsim stored {found} instead of {expected}")
        plain.create(bucket)

    def environment(self, command):
        return super().environment(command) | self.cloud.remote("bench") | self.cloud.aws()


class TwoClouds(Case):
    """From the remote `src:` to the remote `dst:`."""

    servers = ("cloudsim",)
    src_flags, dst_flags = (), ()

    def prepare(self, folder, tools, stack):
        self.folder = folder
        self.src = stack.enter_context(Cloud(tools.paths["cloudsim"], *self.src_flags))
        self.dst = stack.enter_context(Cloud(tools.paths["cloudsim"], *self.dst_flags))
        self.endpoints = [self.src, self.dst]

    def environment(self, command):
        return super().environment(command) | self.src.remote("src") | self.dst.remote("dst")


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)


def lines(path):
    """The lines of a file, as bytes, one after the other."""
    with open(Path(path), "rb") as file:
        for line in file:
            yield line.rstrip(b"\n")
