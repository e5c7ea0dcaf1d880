"""Real servers on loopback, without latency, for what a tool costs by itself: MinIO, and versitygw, which takes far less CPU."""

import contextlib
import http.client
import os
import random
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from s3 import S3, USER


class Server(S3):
    """One server on a free port, its data in `folder`; a context manager. Subclasses say how it is started."""

    # The program, and its name for people.
    program, title = "", ""

    def __init__(self, binary, folder):
        super().__init__(free_port(), secrets.token_hex(16))
        self.binary, self.folder, self.process = binary, Path(folder), None

    def __enter__(self):
        self.folder.mkdir(parents=True)
        self.process = self.start({"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder.parent)})
        # Long enough for a busy machine.
        for _ in range(600):
            if self.alive():
                return self
            time.sleep(0.1)
        self.__exit__()
        raise RuntimeError(f"{self.title} did not start within a minute")

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def alive(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            connection.request("GET", self.health)
            return connection.getresponse().status == 200
        except OSError:
            return False

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def create(self, bucket):
        self.request("PUT", f"/{bucket}")


class Minio(Server):
    """MinIO on a single drive."""

    provider = "Minio"
    program, title = "minio", "MinIO"
    health = "/minio/health/live"

    def start(self, environment):
        environment |= {
            "MINIO_ROOT_USER": USER,
            "MINIO_ROOT_PASSWORD": self.secret,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            # The background scan of all objects would run in the middle of measurements.
            "MINIO_SCANNER_SPEED": "slowest",
        }
        argv = [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(self.folder)]
        return quiet(argv, environment)

    def drop(self, bucket):
        """Deletes a bucket with all that is in it, and gives the space back at once."""
        self.request("DELETE", f"/{bucket}", extra={"x-minio-force-delete": "true"})
        # MinIO itself empties its trash every few minutes only.
        trash = self.folder / ".minio.sys/tmp/.trash"
        for entry in trash.iterdir() if trash.exists() else ():
            shutil.rmtree(entry, ignore_errors=True)


class Versity(Server):
    """versitygw over a folder."""

    program, title = "versitygw", "versitygw"
    health = "/health"

    def start(self, environment):
        environment |= {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": self.secret}
        # Metadata goes into a folder of its own: not every file system has extended attributes for users.
        for name in ("meta", "data"):
            (self.folder / name).mkdir()
        argv = [self.binary, "--port", f"127.0.0.1:{self.port}", "--health", self.health, "--quiet", "posix"]
        return quiet([*argv, "--sidecar", str(self.folder / "meta"), str(self.folder / "data")], environment)

    def drop(self, bucket):
        """Removes a bucket and its contents directly from the disk: the server caches nothing."""
        for name in ("meta", "data"):
            shutil.rmtree(self.folder / name / bucket, ignore_errors=True)


def quiet(argv, environment):
    return subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cpu_seconds(process):
    """User and system seconds that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    """A port on which nobody listens, below those that the kernel gives to whoever takes any: one of them would be another's before a
    server that takes seconds to start listens on it."""
    for _ in range(1000):
        port = random.randrange(10_000, 12_000)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port from 10000 to 12000 is free")
