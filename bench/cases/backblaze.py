"""Backblaze's text: a 1 GB and a 10 GB object, and a bucket of 35 files from 990 bytes to 412 MB, from one provider to another.

Every connection carries 25 MB/s and every request waits 50 ms, so what counts is how many chunks are read and written at once.
"""

import data
from cases.common import RCLONE_LARGE_DOWN, RCLONE_LARGE_UP, Command, TwoClouds, cannot
from cloud import difference

FULL = {"1GB": 1_000_000_000, "10GB": 10_000_000_000, "largest": 412_000_000}
QUICK = {"1GB": 50_000_000, "10GB": 200_000_000, "largest": 12_000_000}
FILES, SMALLEST = 35, 990
# Makes 35 sizes up to 412 MB add up to the text's 2.8 GB.
STEEPNESS = 4.4
LINK = ("--latency", "50ms", "--connection-rate", "25M", "--keep", "sizes")
BUCKET = "moved"
BEST = ["--transfers", "16", "--checkers", "32", "--fast-list", *RCLONE_LARGE_DOWN, *RCLONE_LARGE_UP]
TABLE = [
    ("haul", "haul", []),
    ("rclone", "rclone", []),
    ("rclone best", "rclone", BEST),
]
WHOLE_BUCKET = [
    *TABLE,
    # As the text runs it.
    ("haul no-check-dest", "haul", ["--no-check-dest"]),
    ("rclone no-check-dest", "rclone", ["--no-check-dest", "--fast-list", "--ignore-size"]),
]


def cases(quick):
    size = QUICK if quick else FULL
    return [
        Moved("backblaze-1GB", [("big.bin", size["1GB"])], TABLE),
        Moved("backblaze-10GB", [("big.bin", size["10GB"])], TABLE),
        Moved("backblaze-bucket", list(sizes(size["largest"])), WHOLE_BUCKET),
    ]


def sizes(largest):
    """35 keys in a few folders, their sizes rising steeply."""
    for number in range(FILES):
        share = (number / (FILES - 1)) ** STEEPNESS
        yield f"folder-{number % 4}/file {number:02}.bin", round(SMALLEST + (largest - SMALLEST) * share)


class Moved(TwoClouds):
    """From one endpoint to another; what arrived is compared by its CRC64NVME with what was there."""

    tools = ("rclone",)
    src_flags = ("--preset", "aws-like", "--price", "aws", *LINK, "--bucket", BUCKET)
    dst_flags = ("--preset", "b2-like", "--price", "b2", *LINK, "--bucket", BUCKET)

    def __init__(self, name, plan, table):
        super().__init__()
        self.name, self.plan, self.table = name, plan, table
        total = sum(size for _, size in plan) / 1e9
        files = "one file" if len(plan) == 1 else f"{len(plan)} files"
        self.what = f"{files}, {total:.2g} GB, from one endpoint to another, 50 ms and 25 MB/s a connection"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        for number, (key, size) in enumerate(self.plan):
            self.src.make(BUCKET, key, size, number + 1, data.FIRST_TIME_NS // 10**9 + number)
        self.expected = self.src.stored(BUCKET)

    def commands(self):
        one = len(self.plan) == 1
        end = f"{BUCKET}/{self.plan[0][0]}" if one else BUCKET
        for label, tool, options in self.table:
            equal = "haul no-check-dest" if label == "rclone no-check-dest" else None
            yield Command(label, tool, ["copyto" if one else "copy", *options, f"src:{end}", f"dst:{end}"], equal)
        yield cannot("s5cmd", "one endpoint only")
        yield cannot("aws", "one endpoint only")

    def fresh(self, _command):
        self.dst.create(BUCKET)

    def check(self, _command, _run, _whole):
        return difference(self.expected, self.dst.stored(BUCKET))
