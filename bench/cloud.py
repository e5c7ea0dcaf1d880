"""A cloudsim on loopback: an S3 endpoint with latency, limits and prices, which counts what it was asked for.

Its admin paths need no signature. Nothing here decides what is measured; the cases do.
"""

import http.client
import json
import secrets
import select
import subprocess
import urllib.parse

from s3 import S3
from server import cpu_seconds

START_SECONDS = 60


class Cloud(S3):
    """One cloudsim with these flags; a context manager. It ends with the benchmark, however that ends."""

    # AWS's own name, so that rclone and haul list and sign as they do for AWS.
    provider = "AWS"

    def __init__(self, binary, *flags):
        super().__init__(0, secrets.token_hex(16))
        # Checking signatures and MD5s would take time on this machine that a cloud's clients don't spend.
        self.argv = [binary, "--until-stdin-closes", "--trusting", *flags]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("cloudsim http://"):
            self.__exit__()
            raise RuntimeError(f"cloudsim did not start: {' '.join(self.argv)} says {line!r}")
        self.port = urllib.parse.urlsplit(line.split()[1]).port
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def remote(self, name):
        """As over TLS, where bodies are not hashed for the signature: over plain HTTP rclone can't send any to AWS otherwise."""
        return super().remote(name) | {f"RCLONE_CONFIG_{name.upper()}_USE_UNSIGNED_PAYLOAD": "true"}

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def admin(self, method, path, content=None, read=http.client.HTTPResponse.read):
        """Sends a request to an admin path, with JSON if there is content. Gives the body, or what `read` makes of it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, f"/_cloudsim/{path}", json.dumps(content) if content is not None else None)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise RuntimeError(f"cloudsim answers {answer.status} to {method} {path}: {answer.read(300)!r}")
            return read(answer)
        finally:
            connection.close()

    def reset(self):
        self.admin("POST", "reset")

    def report(self):
        """What was asked for since the last reset: requests by kind, throttled, cost and more."""
        return json.loads(self.admin("GET", "report"))

    def create(self, bucket):
        """An empty bucket, whatever it held."""
        self.admin("PUT", f"bucket/{bucket}")

    def fill(self, bucket, keys, shape, size):
        """A synthetic bucket, whatever it held: keys and bodies are computed, not stored."""
        self.admin("PUT", f"bucket/{bucket}", {"keys": keys, "shape": shape, "size": size})

    def drop(self, bucket):
        self.admin("DELETE", f"bucket/{bucket}")

    def make(self, bucket, key, size, seed, seconds, md5=True):
        """A stored key of made content, with a modification time in seconds, a true CRC64NVME and a true MD5 unless none is wanted; nothing
        is sent."""
        query = {"key": key, "size": size, "seed": seed, "mtime": seconds} | ({"md5": 1} if md5 else {})
        self.admin("PUT", f"bucket/{bucket}/make?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}")

    def count(self, bucket):
        """How many keys are stored, without holding them."""
        return self.admin("GET", f"bucket/{bucket}/keys", read=lines)

    def stored(self, bucket):
        """A line for each stored key: size, CRC64NVME of the content that arrived, key."""
        return self.admin("GET", f"bucket/{bucket}/keys").decode().splitlines()


def lines(answer):
    """How many lines an answer has, a block at a time."""
    return sum(block.count(b"\n") for block in iter(lambda: answer.read(1 << 20), b""))


def difference(expected, found):
    """What is wrong with the stored keys of a bucket, or None. Both are lines of size, CRC64NVME and key."""
    missing, more = set(expected) - set(found), set(found) - set(expected)
    if not missing and not more and len(expected) == len(found):
        return None
    return f"{len(found)} keys instead of {len(expected)}; missing or wrong: {sorted(missing)[:2]}, instead: {sorted(more)[:2]}"


def add_up(reports):
    """The reports of several endpoints as one, for the run's record."""
    requests = {}
    for report in reports:
        for kind, number in report["requests"].items():
            requests[kind] = requests.get(kind, 0) + number
    total = {name: sum(report.get(name) or 0 for report in reports) for name in SUMS}
    first = [report["first_get_or_put_ms"] for report in reports if report.get("first_get_or_put_ms") is not None]
    peak = max((report.get("peak_in_flight") or 0 for report in reports), default=0)
    return {"requests": requests, **total, "peak_in_flight": peak, "first_get_or_put_ms": min(first, default=None)}


SUMS = ("total_requests", "throttled", "bytes_in", "bytes_out", "connections", "cost_usd", "unfinished_uploads")
