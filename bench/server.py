"""A MinIO server on loopback: a real server, without latency, for what a tool costs by itself."""

import http.client
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from s3 import S3, USER


class Minio(S3):
    """One server on a free port, its data in `folder`; a context manager."""

    provider = "Minio"

    def __init__(self, binary, folder):
        super().__init__(free_port(), secrets.token_hex(16))
        self.binary, self.folder, self.process = binary, Path(folder), None

    def __enter__(self):
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder.parent),
            "MINIO_ROOT_USER": USER,
            "MINIO_ROOT_PASSWORD": self.secret,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            # The background scan of all objects would run in the middle of measurements.
            "MINIO_SCANNER_SPEED": "slowest",
        }
        self.folder.mkdir(parents=True)
        argv = [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(self.folder)]
        self.process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(150):
            if self.alive():
                return self
            time.sleep(0.1)
        self.__exit__()
        raise RuntimeError("MinIO did not start within 15 seconds")

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def alive(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            connection.request("GET", "/minio/health/live")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def create(self, bucket):
        self.request("PUT", f"/{bucket}")

    def drop(self, bucket):
        """Deletes a bucket with all that is in it, and gives the space back at once."""
        self.request("DELETE", f"/{bucket}", extra={"x-minio-force-delete": "true"})
        # MinIO itself empties its trash every few minutes only.
        trash = self.folder / ".minio.sys/tmp/.trash"
        for entry in trash.iterdir() if trash.exists() else ():
            shutil.rmtree(entry, ignore_errors=True)


def cpu_seconds(process):
    """User and system seconds that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
