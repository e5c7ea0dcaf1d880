"""The HPC text: 1,000 files of 1 MB, and one of 5 GB, up and down, over the number of transfers.

Its provider is Google Drive, which cloudsim's gdrive-like imitates; aws-like is a store without such limits. The text's finding is
a knee: no gain from 8 transfers up, from 4 down, and none at all for the large file. Haul's line without a number chooses by
itself.
"""

from functools import partial
from pathlib import Path

import data
from cases.common import RCLONE_LARGE_DOWN, RCLONE_LARGE_UP, RCLONE_MANY, CloudCase, Command, remove
from cloud import Cloud, difference

SWEEP = (1, 4, 8, 16, 32)
# rclone's own default, which is one of the sweep.
RCLONE_TRANSFERS = 4
FULL = {"many": (1_000, 1_000_000, 10), "one": 5_000_000_000, "sweep": {"aws": SWEEP, "gdrive": SWEEP}}
# One transfer at a time would take minutes on gdrive-like by design.
QUICK = {"many": (10, 1_000_000, 4), "one": 40_000_000, "sweep": {"aws": (1, 4), "gdrive": (4,)}}
PRICES = {"aws": "aws", "gdrive": "gdrive"}
BUCKET = "hpc"


def cases(quick):
    size = QUICK if quick else FULL
    found = []
    for preset in ("aws", "gdrive"):
        for kind in ("many", "one"):
            found.append(Up(f"hpc-{preset}-up-{kind}", preset, kind, size))
            found.append(Down(f"hpc-{preset}-down-{kind}", preset, kind, size))
    return found


class Hpc(CloudCase):
    """One direction, one preset, one kind of data."""

    limit = 3_000
    tools = ("rclone", "s5cmd", "aws")

    def __init__(self, name, preset, kind, size):
        super().__init__()
        self.name, self.preset, self.kind = name, preset, kind
        self.sweep = size["sweep"][preset]
        self.flags = ("--preset", f"{preset}-like", "--price", PRICES[preset], "--keep", "sizes", "--bucket", BUCKET)
        if kind == "many":
            count, each, folders = size["many"]
            # Key, number, size.
            self.plan = [(file, number, each) for number, file in enumerate(data.names(count, folders))]
            text = f"{count:,} × {each / 1e6:g} MB"
        else:
            self.plan = [("big.bin", 0, size["one"])]
            text = f"1 × {size['one'] / 1e9:g} GB"
        self.local = None
        self.bytes = sum(each for _, _, each in self.plan)
        self.what = f"{text}, {self.way}, cloudsim {preset}-like, over --transfers"

    def need(self):
        return int(1.1 * self.bytes)

    @property
    def seconds(self):
        """From the text's own times: each of the lines but those of one transfer takes what the knee took."""
        if self.preset != "gdrive" or self.kind != "many":
            return None
        return len(self.plan) / 1000 * self.text_times[1] * sum(not command.once for command in self.commands())

    @property
    def seconds_once(self):
        if self.preset != "gdrive" or self.kind != "many":
            return 0
        return len(self.plan) / 1000 * self.text_times[0] * sum(command.once for command in self.commands())

    def commands(self):
        yield self.command("haul", "haul", [])
        for number in self.sweep:
            yield self.command(f"haul t{number}", "haul", ["--transfers", str(number)], series="haul", at=number)
        for number in self.sweep:
            default = number == RCLONE_TRANSFERS
            label, words = ("rclone", []) if default else (f"rclone t{number}", ["--transfers", str(number)])
            yield self.command(label, "rclone", words, equal=f"haul t{number}", series="rclone", at=number)
        yield self.command("rclone best", "rclone", self.best())
        yield self.command("s5cmd", "s5cmd", [])
        if self.kind == "one":
            yield self.command("s5cmd best", "s5cmd", ["--concurrency", "32", "--part-size", "16"])
        yield self.command("aws", "aws", [])

    def best(self):
        if self.kind == "many":
            return RCLONE_MANY
        return RCLONE_LARGE_UP if self.way == "up" else RCLONE_LARGE_DOWN

    def command(self, label, tool, options, **more):
        # Runs that take minutes because the simulated provider is slow take the same time each.
        slow = self.preset == "gdrive" and "--transfers" in options and options[-1] == "1"
        return Command(label, tool, self.words(tool, options), once=slow, **more)


class Up(Hpc):
    """From a folder into an empty bucket; what arrived is compared by its CRC64NVME with what the benchmark's own client sent."""

    way, text_times = "up", (1293, 199)

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.local = Path(folder, "files")
        files = [data.describe(key, number, size) for key, number, size in self.plan]
        data.write(files, self.local)
        with self.plain() as plain:
            plain.create(BUCKET)
            self.prove(plain, BUCKET)
            data.upload(files, plain, BUCKET)
            self.expected = plain.stored(BUCKET)

    def words(self, tool, options):
        return transfer_words(tool, options, f"{self.local}/", BUCKET, up=True)

    def fresh(self, _command):
        self.cloud.create(BUCKET)

    def check(self, _command, _run, _whole):
        return difference(self.expected, self.cloud.stored(BUCKET))


class Down(Hpc):
    """From a bucket, whose content the server makes, into a fresh folder; compared with what the benchmark's own client read."""

    way, text_times = "down", (307, 93)

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.local = Path(folder, "files")
        self.files = []
        with self.plain() as plain:
            plain.create(BUCKET)
            fill(plain, self.plan)
            for key, number, size in self.plan:
                self.files.append(plain.read(BUCKET, key, partial(data.read, key, number, size)))
        fill(self.cloud, self.plan)

    def words(self, tool, options):
        return transfer_words(tool, options, f"{self.local}/", BUCKET, up=False)

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.local, whole)

    def discard(self, _command):
        remove(self.local)


def fill(cloud: Cloud, plan):
    for key, number, size in plan:
        cloud.make(BUCKET, key, size, number + 1, 1_600_000_000 + number)


def transfer_words(tool, options, folder, bucket, up):
    """A copy of a folder into a bucket, or of a bucket into a folder."""
    if tool == "s5cmd":
        # Otherwise it would print a line for each file.
        there = f"s3://{bucket}/" if up else f"s3://{bucket}/*"
        return ["--log", "error", "cp", *options, *((folder, there) if up else (there, folder))]
    if tool == "aws":
        there = f"s3://{bucket}/"
        return ["s3", "cp", "--recursive", "--only-show-errors", *((folder, there) if up else (there, folder))]
    there = f"bench:{bucket}"
    return ["copy", *options, *((folder, there) if up else (there, folder))]
