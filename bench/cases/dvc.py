"""DVC's text on deciding what to transfer: few changes against a large bucket, one file against it, many against an empty one.

The bucket has the layout of a DVC remote. The local side is a DVC cache of the same names, with a hand-written repository
around it, so that `dvc status -c` answers the same question as `copy --dry-run` of the cache. DVC and
`haul dvc` start without an index, as on another machine or in CI; but in `dvc-warm`, where each has its index of what was there before the
change, and in the pushes of many small files, which end what the status begins.
"""

import datetime
import hashlib
import json
import os
import subprocess
from pathlib import Path

from cases.common import OVERHEAD, CloudCase, Command, lines, remove

FULL = {"keys": 1_000_000, "some": 100_000, "many": 1_000_000, "push": 5_000}
QUICK = {"keys": 8_000, "some": 600, "many": 600, "push": 300}
BUCKET, SIZE = "dvc", 100
PREFIX = "files/md5/"
RCLONE_KEY_BYTES = 1_100
SKIPPED = b"Skipped copy as --dry-run is set"
BEST = ["--checkers", "64", "--fast-list"]


def cases(quick):
    size = QUICK if quick else FULL
    keys, some, many = size["keys"], size["some"], size["many"]
    return [
        Status("dvc-changed", f"status of {some:,} local files, of which one changed, against {keys:,} keys", keys, some, 1),
        Warm("dvc-warm", f"the same with an index: status of {some:,} local files, of which one changed, against {keys:,} keys", keys, some, 1),
        Status("dvc-one", f"status of one new local file against {keys:,} keys", keys, 0, 1),
        Status("dvc-empty", f"status of {many:,} local files against an empty bucket", 0, 0, many),
        Push("dvc-push", f"push of {size['push']:,} small new files, 50 ms a request", size["push"], "50ms"),
        Push("dvc-push-near", f"push of {size['push']:,} small new files, no latency", size["push"], "0ms"),
    ]


class Status(CloudCase):
    """What a copy would transfer: `old` files are stored, `new` ones are not."""

    limit = 1_800
    tools = ("rclone", "dvc")
    flags = ("--preset", "aws-like", "--price", "aws")

    def __init__(self, name, what, keys, old, new):
        super().__init__()
        self.name, self.what, self.keys, self.old, self.new = name, f"{what}, cloudsim aws-like", keys, old, new
        self.memory = (keys + old + new) * RCLONE_KEY_BYTES

    def need(self):
        return (self.old + self.new + 256) * (SIZE + OVERHEAD)

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.log, self.out, self.index = Path(folder, "log"), Path(folder, "out"), Path(folder, "index")
        self.repo, self.cache = Path(folder, "repo"), Path(folder, "repo/.dvc/cache")
        stored = {}
        if self.keys:
            self.cloud.fill(BUCKET, self.keys, "dvc", SIZE)
            stored = self.evenly(self.old) if self.old else {}
        else:
            self.cloud.create(BUCKET)
        fresh = {}
        for number in range(self.new):
            content = (b"new %d" % number).ljust(SIZE)
            name = hashlib.md5(content).hexdigest()
            fresh[f"{PREFIX}{name[:2]}/{name[2:]}"] = content
        for key, modified in stored.items():
            self.write(key, bytes(SIZE), modified)
        for key, content in fresh.items():
            self.write(key, content, None)
        self.expected = self.new
        self.describe([key.removeprefix(PREFIX).replace("/", "") for key in [*stored, *fresh]])

    def evenly(self, count):
        """So many of the bucket's keys, evenly spread, with their times."""
        step = self.keys // count
        with self.plain() as plain:
            plain.fill(BUCKET, self.keys, "dvc", SIZE)
            return {key: modified for number, (key, _, modified) in enumerate(plain.entries(BUCKET)) if number % step == 0}

    def write(self, key, content, modified):
        """A file of the cache, marked as verified in DVC's way, with the time that the bucket's listing says."""
        path = Path(self.cache, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o444)
        if modified:
            stamp = seconds(modified)
            os.utime(path, (stamp, stamp))

    def describe(self, hashes):
        """The repository: its remote, and one tracked path that holds these files."""
        config = f"[core]\n    remote = s\n    no_scm = true\n    analytics = false\n['remote \"s\"']\n    url = s3://{BUCKET}\n"
        Path(self.repo, ".dvc/config").write_text(f"{config}    endpointurl = http://127.0.0.1:{self.cloud.port}\n", encoding="utf-8")
        Path(self.repo, ".dvc/tmp").mkdir(exist_ok=True)
        if len(hashes) == 1:
            tracked, count = hashes[0], ""
        else:
            text = json.dumps([{"md5": name, "relpath": f"{number:07}"} for number, name in enumerate(hashes)]).encode()
            tracked, count = f"{hashlib.md5(text).hexdigest()}.dir", f"  nfiles: {len(hashes)}\n"
            self.list = f"{PREFIX}{tracked[:2]}/{tracked[2:]}"
            self.write(self.list, text, None)
            self.expected += 1
        out = f"outs:\n- md5: {tracked}\n  size: {len(hashes) * SIZE}\n{count}  hash: md5\n  path: data\n"
        Path(self.repo, "data.dvc").write_text(out, encoding="utf-8")

    def commands(self):
        full = self.keys + self.old + self.new >= FULL["keys"]

        def copy(label, tool, *options, **more):
            ends = [str(self.cache), f"bench:{BUCKET}"]
            return Command(label, tool, ["copy", "--dry-run", "--stats", "0", *options, *ends], **more)

        yield copy("haul", "haul")
        yield copy("haul size-only", "haul", "--size-only")
        yield copy("haul no-traverse", "haul", "--no-traverse", once=full)
        ends = ["--json", str(self.cache), f"bench:{BUCKET}"]
        yield Command("haul status", "haul", ["status", *ends], ends=(1,))
        yield Command("haul dvc", "haul", ["dvc", "status", "-c", "--json"], folder=str(self.repo))
        # By default it asks for the time of each stored file that is also here.
        yield copy("rclone", "rclone", once=full)
        yield copy("rclone fast-list", "rclone", *BEST)
        yield copy("rclone best", "rclone", *BEST, "--size-only", equal="haul size-only")
        yield copy("rclone no-traverse", "rclone", "--no-traverse", once=full, equal="haul no-traverse")
        yield Command("dvc", "dvc", ["--cd", str(self.repo), "status", "-c", "--json"], equal="haul dvc")

    def environment(self, command):
        return super().environment(command) | {
            "DVC_SITE_CACHE_DIR": str(self.index),
            "DVC_NO_ANALYTICS": "1",
            "HAUL_STATE_DIR": str(self.index),
        }

    def output(self, _command):
        return self.out, self.log

    def check(self, command, run, _whole):
        writes = [kind for kind in run["requests"] if kind.startswith(("Put", "Create", "Delete", "Complete", "Upload"))]
        if writes:
            return f"only asked what would be done, and yet: {writes}"
        if command.label == "haul status":
            found = sum(json.loads(line).get("status") == "new" for line in lines(self.out))
            return None if found == self.expected else f"says that {found} are new instead of {self.expected}"
        if "dvc" in command.label:
            answer = json.loads(self.out.read_text(encoding="utf-8"))
            found = sum(state == "new" for state in answer.values())
            return None if found == self.expected == len(answer) else f"says that {found} are new instead of {self.expected}"
        found = sum(SKIPPED in line for line in lines(self.log))
        return None if found == self.expected else f"would copy {found} files instead of {self.expected}"

    def discard(self, _command):
        remove(self.index)


class Warm(Status):
    """The same where DVC and haul know what was at the remote before the change, from a status of that."""

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.paths, self.known = tools.paths, set()
        changed, expected = Path(self.repo, "data.dvc").read_bytes(), self.expected
        with self.plain() as plain:
            plain.fill(BUCKET, self.keys, "dvc", SIZE)
            step = self.keys // self.old
            old = [key for number, (key, _, _) in enumerate(plain.entries(BUCKET)) if number % step == 0]
        # The last one is what changed then.
        self.describe([key.removeprefix(PREFIX).replace("/", "") for key in old])
        self.cloud.put(BUCKET, self.list, Path(self.cache, self.list).read_bytes(), {})
        self.before, self.after, self.expected = Path(self.repo, "data.dvc").read_bytes(), changed, expected

    def commands(self):
        return [command for command in super().commands() if "dvc" in command.label]

    def fresh(self, command):
        """Before its first run each fills its index."""
        if command.tool in self.known:
            return
        self.known.add(command.tool)
        Path(self.repo, "data.dvc").write_bytes(self.before)
        argv = [self.paths[command.tool], *command.words]
        asked = subprocess.run(argv, env=self.environment(command), cwd=command.folder, stdout=subprocess.PIPE, check=True)
        if json.loads(asked.stdout) != {}:
            raise RuntimeError(f"{command.label}: what was there before isn't all there: {asked.stdout[:200]!r}")
        Path(self.repo, "data.dvc").write_bytes(self.after)

    def discard(self, _command):
        pass


class Push(Status):
    """Small files that are in the cache go to an empty bucket."""

    def __init__(self, name, what, count, latency):
        super().__init__(name, what, 0, 0, count)
        self.what, self.flags = f"{what}, cloudsim", ("--latency", latency)

    def commands(self):
        yield Command("haul dvc", "haul", ["dvc", "push"], folder=str(self.repo))
        yield Command("dvc", "dvc", ["--cd", str(self.repo), "push"], equal="haul dvc")

    def fresh(self, _command):
        self.cloud.create(BUCKET)

    def check(self, _command, _run, _whole):
        found = len(self.cloud.stored(BUCKET))
        return None if found == self.expected else f"stored {found} keys instead of {self.expected}"


def seconds(text):
    """A listing's time as seconds since 1970."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
