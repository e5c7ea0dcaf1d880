"""A million keys: deleting them, and a sync between two endpoints in which nothing has changed."""

from cases.common import CloudCase, Command, TwoClouds, cannot

FULL, QUICK = 1_000_000, 1_500
BUCKET, SIZE = "mass", 100
# Keys that one listing answers at most.
PAGE = 1_000
RCLONE_KEY_BYTES = 2_200
# What a round takes for each key, all lines but those that run once, from a run at reduced size.
DELETE_SECONDS, NOOP_SECONDS = 0.0004, 0.0029
FLAGS = ("--preset", "aws-like", "--price", "aws")
# Requests that may happen although nothing has changed.
READS = {"ListObjectsV2", "ListObjects", "HeadObject", "HeadBucket", "GetBucketLocation", "ListBuckets", "GetBucketVersioning"}


def cases(quick):
    keys = QUICK if quick else FULL
    return [Delete(keys), Noop(keys)]


class Delete(CloudCase):
    """A delete of all keys of a bucket."""

    name = "mass-delete"
    limit = 1_800
    tools = ("rclone", "s5cmd", "aws")
    flags = FLAGS

    def __init__(self, keys):
        super().__init__()
        self.keys, self.memory = keys, keys * RCLONE_KEY_BYTES
        self.seconds = keys * DELETE_SECONDS
        self.what = f"delete of {keys:,} keys, cloudsim aws-like"

    def commands(self):
        there = f"bench:{BUCKET}"
        yield Command("haul", "haul", ["delete", there])
        yield Command("rclone", "rclone", ["delete", there], once=self.keys >= FULL)
        best = ["--transfers", "256", "--checkers", "256", "--fast-list"]
        yield Command("rclone best", "rclone", ["delete", *best, there])
        yield Command("s5cmd", "s5cmd", ["--log", "error", "rm", f"s3://{BUCKET}/*"])
        yield Command("aws", "aws", ["s3", "rm", "--recursive", "--only-show-errors", f"s3://{BUCKET}/"], once=self.keys >= FULL)

    def fresh(self, _command):
        self.cloud.fill(BUCKET, self.keys, "flat", SIZE)

    def check(self, _command, _run, _whole):
        left = next(self.cloud.entries(BUCKET), None)
        return f"not deleted: {left[0]}" if left else None


class Noop(TwoClouds):
    """A sync of two buckets that hold the same."""

    name = "mass-noop"
    limit = 1_800
    tools = ("rclone",)
    src_flags = dst_flags = FLAGS

    def __init__(self, keys):
        super().__init__()
        self.keys, self.memory = keys, keys * RCLONE_KEY_BYTES
        self.seconds = keys * NOOP_SECONDS
        self.what = f"sync of {keys:,} keys between two endpoints when nothing has changed, cloudsim aws-like"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        for cloud in self.endpoints:
            cloud.fill(BUCKET, self.keys, "flat", SIZE)

    def commands(self):
        ends = [f"src:{BUCKET}", f"dst:{BUCKET}"]
        best = ["--checkers", "64", "--fast-list"]
        yield Command("haul", "haul", ["sync", *ends])
        # It asks for the time of each key, at both ends.
        yield Command("rclone", "rclone", ["sync", *ends], once=self.keys >= FULL)
        yield Command("rclone best", "rclone", ["sync", *best, "--checksum", *ends], "haul checksum")
        yield Command("haul checksum", "haul", ["sync", "--checksum", *ends])
        yield Command("rclone size-only", "rclone", ["sync", *best, "--size-only", *ends], "haul size-only")
        yield Command("haul size-only", "haul", ["sync", "--size-only", *ends])
        yield cannot("s5cmd", "one endpoint only")
        yield cannot("aws", "one endpoint only")

    def check(self, _command, run, _whole):
        more = set(run["requests"]) - READS
        if more:
            return f"nothing had changed, and yet: {sorted(more)}"
        listings = sum(number for kind, number in run["requests"].items() if kind.startswith("ListObjects"))
        pages = 2 * -(-self.keys // PAGE)
        return f"{listings} listings can't have seen both buckets" if listings < pages else None
