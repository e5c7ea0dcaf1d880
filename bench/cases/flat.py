"""A flat bucket of a million keys and of ten: how long a listing takes, when a copy's first byte moves, and what memory both need."""

import json
import zlib
from pathlib import Path

from cases.common import CloudCase, Command, lines, remove

FULL = {"1M": 1_000_000, "10M": 10_000_000}
QUICK = {"1M": 6_000, "10M": 12_000}
BUCKET, SIZE = "flat", 100
# rclone holds about 1 kB a key (its documentation on S3).
RCLONE_KEY_BYTES = 1_100


def cases(quick):
    size = QUICK if quick else FULL
    found = []
    for name, keys in size.items():
        few = keys > FULL["1M"]
        found += [
            List(f"flat-{name}-list", f"names of {keys:,} keys in one directory", keys, few),
            Size(f"flat-{name}-size", f"number and bytes of {keys:,} keys", keys, few),
            First(f"flat-{name}-first", f"copy of {keys:,} keys, stopped as the first of them moves", keys, few),
        ]
    return found


class Flat(CloudCase):
    """One synthetic bucket on an endpoint like AWS."""

    limit = 3_600
    tools = ("rclone", "s5cmd", "aws")
    flags = ("--preset", "aws-like", "--price", "aws")

    def __init__(self, name, what, keys, few):
        super().__init__()
        self.name, self.what, self.keys = f"{name}", f"{what}, cloudsim aws-like", keys
        self.runs = 1 if few else None
        self.memory = keys * RCLONE_KEY_BYTES

    def need(self):
        # The listing that is checked.
        return self.keys * 100

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.out = Path(folder, "out")
        self.cloud.fill(BUCKET, self.keys, "flat", SIZE)

    def discard(self, _command):
        self.out.unlink(missing_ok=True)


class List(Flat):
    """Names on standard output, in any order: their number and the sum of their CRCs are compared."""

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        with self.plain() as plain:
            plain.fill(BUCKET, self.keys, "flat", SIZE)
            self.expected = summary(key.encode() for key, _, _ in plain.entries(BUCKET))

    def commands(self):
        yield Command("haul", "haul", ["lsf", f"bench:{BUCKET}"])
        yield Command("rclone", "rclone", ["lsf", f"bench:{BUCKET}"])
        yield Command("rclone fast-list", "rclone", ["lsf", "-R", "--fast-list", f"bench:{BUCKET}"])
        yield Command("s5cmd", "s5cmd", ["ls", f"s3://{BUCKET}/*"])
        yield Command("aws", "aws", ["s3", "ls", f"s3://{BUCKET}/"])

    def output(self, _command):
        return self.out, None

    def check(self, command, _run, _whole):
        # s5cmd and aws write time and size before the name.
        last = command.tool in ("s5cmd", "aws")
        found = summary(line.rsplit(b" ", 1)[-1] if last else line for line in lines(self.out))
        return None if found == self.expected else f"names differ: {found[0]} instead of {self.expected[0]}"


class Size(Flat):
    """Number and bytes of all keys."""

    def commands(self):
        yield Command("haul", "haul", ["size", "--json", f"bench:{BUCKET}"])
        yield Command("rclone", "rclone", ["size", "--json", f"bench:{BUCKET}"])
        yield Command("rclone fast-list", "rclone", ["size", "--json", "--fast-list", f"bench:{BUCKET}"])
        yield Command("s5cmd", "s5cmd", ["du", f"s3://{BUCKET}/*"])

    def output(self, _command):
        return self.out, None

    def check(self, command, _run, _whole):
        text = self.out.read_text(encoding="utf-8")
        if command.tool == "s5cmd":
            words = text.split()
            found = (int(words[3]), int(words[0])) if len(words) > 3 else None
        else:
            answer = json.loads(text)
            found = answer["count"], answer["bytes"]
        expected = self.keys, self.keys * SIZE
        return None if found == expected else f"{found} keys and bytes instead of {expected}"


class First(Flat):
    """A copy to a fresh folder, killed when its first GET has come."""

    columns = (("first transfer s", "first_transfer_s"),)

    def commands(self):
        local = f"{self.out}/"
        yield Command("haul", "haul", ["copy", f"bench:{BUCKET}", local])
        yield Command("rclone", "rclone", ["copy", f"bench:{BUCKET}", local])
        yield Command("rclone best", "rclone", ["copy", "--transfers", "64", "--checkers", "64", "--fast-list", f"bench:{BUCKET}", local])
        yield Command("s5cmd", "s5cmd", ["--log", "error", "cp", f"s3://{BUCKET}/*", local])

    def until(self, _command):
        return lambda: self.cloud.report().get("first_get_or_put_ms") is not None

    def check(self, _command, run, _whole):
        first = run.get("first_get_or_put_ms")
        if first is None:
            return "nothing was transferred"
        run["first_transfer_s"] = first / 1000
        return None

    def discard(self, _command):
        remove(self.out)


def summary(names):
    """How many, and a sum that doesn't depend on their order."""
    count = total = 0
    for name in names:
        count += 1
        total += zlib.crc32(name)
    return count, total
