"""A MinIO server on loopback, and the few signed requests that preparing and checking need.

The checks speak S3 themselves: a tool's result is never judged by a tool.
"""

import datetime
import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from data import stream_digest

REGION = "us-east-1"
USER = "bench"
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Minio:
    """One server on a free port, its data in `folder`; a context manager, None inside if there is no binary."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.process = binary, Path(folder), None
        self.secret = secrets.token_hex(16)
        self.port = free_port()

    def __enter__(self):
        if not self.binary:
            return None
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
        """User and system seconds that the server has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def environment(self):
        """What rclone, haul and s5cmd need to reach this server as the remote `bench:`."""
        return {
            "RCLONE_CONFIG_BENCH_TYPE": "s3",
            "RCLONE_CONFIG_BENCH_PROVIDER": "Minio",
            "RCLONE_CONFIG_BENCH_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "RCLONE_CONFIG_BENCH_REGION": REGION,
            "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": USER,
            "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": self.secret,
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "S3_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def create(self, bucket):
        self.request("PUT", f"/{bucket}")

    def put(self, bucket, key, body, meta):
        """Writes an object with metadata, whose names have no prefix here."""
        self.request("PUT", f"/{bucket}/{urllib.parse.quote(key)}", body=body, meta=meta)

    def put_parts(self, bucket, key, blocks, meta):
        """Writes a large object from an iterable of blocks, each of at least 5 MiB but the last."""
        path = f"/{bucket}/{urllib.parse.quote(key)}"
        answer = ElementTree.fromstring(self.request("POST", path, {"uploads": ""}, meta=meta))
        upload = answer.find(f"{NAMESPACE}UploadId").text
        parts = []
        for number, block in enumerate(blocks, 1):
            tag = self.request("PUT", path, {"partNumber": str(number), "uploadId": upload}, block, header="ETag")
            parts.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        body = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>"
        self.request("POST", path, {"uploadId": upload}, body.encode())

    def list(self, bucket):
        """All keys of a bucket with their sizes."""
        found, token = {}, None
        while True:
            query = {"list-type": "2"} | ({"continuation-token": token} if token else {})
            answer = ElementTree.fromstring(self.request("GET", f"/{bucket}", query))
            for entry in answer.iter(f"{NAMESPACE}Contents"):
                found[entry.find(f"{NAMESPACE}Key").text] = int(entry.find(f"{NAMESPACE}Size").text)
            token = answer.findtext(f"{NAMESPACE}NextContinuationToken")
            if not token:
                return found

    def digest(self, bucket, key, first=0, length=None):
        """SHA-256 of an object, or of `length` bytes from `first`."""
        span = None if length is None else f"bytes={first}-{first + length - 1}"
        return self.request("GET", f"/{bucket}/{urllib.parse.quote(key)}", span=span, hashed=True)

    def drop(self, bucket):
        """Deletes a bucket with all that is in it, and gives the space back at once."""
        self.request("DELETE", f"/{bucket}", force=True)
        # MinIO itself empties its trash every few minutes only.
        trash = self.folder / ".minio.sys/tmp/.trash"
        for entry in trash.iterdir() if trash.exists() else ():
            shutil.rmtree(entry, ignore_errors=True)

    def request(self, method, path, query=None, body=b"", header=None, span=None, hashed=False, force=False, meta=None):
        """Sends one signed request. Gives the body, one response header, or the body's SHA-256."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        headers |= {f"x-amz-meta-{name}": value for name, value in (meta or {}).items()}
        if force:
            headers["x-minio-force-delete"] = "true"
        words = sorted((urllib.parse.quote(k, safe=""), urllib.parse.quote(v, safe="")) for k, v in (query or {}).items())
        text = "&".join(f"{k}={v}" for k, v in words)
        headers["authorization"] = sign(self.secret, method, path, text, headers, now)
        if span:
            headers["range"] = span
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, f"{path}?{text}" if text else path, body, headers)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise RuntimeError(f"MinIO answers {answer.status} to {method} {path}: {answer.read(300)!r}")
            if hashed:
                return stream_digest(answer)
            content = answer.read()
            return answer.getheader(header) if header else content
        finally:
            connection.close()


def sign(secret, method, path, query, headers, now):
    """The Authorization header of AWS Signature Version 4."""
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = ("AWS4" + secret).encode()
    for word in (now[:8], REGION, "s3", "aws4_request", text):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return f"AWS4-HMAC-SHA256 Credential={USER}/{scope}, SignedHeaders={names}, Signature={key.hex()}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
