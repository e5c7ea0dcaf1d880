"""The few signed S3 requests that preparing and checking need; knows nothing of how a server is started.

The checks speak S3 themselves: a tool's result is never judged by a tool.
"""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse
import xml.etree.ElementTree as ElementTree

from data import BLOCK, stream_digest

REGION = "us-east-1"
USER = "bench"
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class S3:
    """An endpoint on loopback, as the benchmark itself reaches it."""

    # As rclone and haul name what they talk to.
    provider = "Other"

    def __init__(self, port, secret):
        self.port, self.secret = port, secret

    def remote(self, name):
        """What rclone and haul need to reach this endpoint as the remote `name:`."""
        prefix = f"RCLONE_CONFIG_{name.upper()}_"
        return {
            f"{prefix}TYPE": "s3",
            f"{prefix}PROVIDER": self.provider,
            f"{prefix}ENDPOINT": f"http://127.0.0.1:{self.port}",
            f"{prefix}REGION": REGION,
            f"{prefix}ACCESS_KEY_ID": USER,
            f"{prefix}SECRET_ACCESS_KEY": self.secret,
            f"{prefix}FORCE_PATH_STYLE": "true",
        }

    def aws(self):
        """What s5cmd, aws-cli and DVC need to reach this endpoint."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "S3_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

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

    def entries(self, bucket):
        """Key, size and time of storing of everything in a bucket, in order, page by page."""
        token = None
        while True:
            query = {"list-type": "2"} | ({"continuation-token": token} if token else {})
            answer = ElementTree.fromstring(self.request("GET", f"/{bucket}", query))
            for entry in answer.iter(f"{NAMESPACE}Contents"):
                size = int(entry.findtext(f"{NAMESPACE}Size"))
                yield entry.findtext(f"{NAMESPACE}Key"), size, entry.findtext(f"{NAMESPACE}LastModified")
            token = answer.findtext(f"{NAMESPACE}NextContinuationToken")
            if not token:
                return

    def list(self, bucket):
        """All keys of a bucket with their sizes."""
        return {key: size for key, size, _ in self.entries(bucket)}

    def digest(self, bucket, key, first=0, length=None):
        """SHA-256 of an object, or of `length` bytes from `first`."""
        span = None if length is None else f"bytes={first}-{first + length - 1}"
        return self.request("GET", f"/{bucket}/{urllib.parse.quote(key)}", span=span, read=stream_digest)

    def read(self, bucket, key, read):
        """What `read` makes of an object's blocks."""
        return self.request("GET", f"/{bucket}/{urllib.parse.quote(key)}", read=lambda answer: read(blocks(answer)))

    def head(self, bucket, key):
        """The headers of an object, names in lower case."""
        return self.request("HEAD", f"/{bucket}/{urllib.parse.quote(key)}", read=headers_of)

    def request(self, method, path, query=None, body=b"", header=None, span=None, read=None, extra=None, meta=None):
        """Sends one signed request. Gives the body, one response header, or what `read` makes of the response."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        headers |= {f"x-amz-meta-{name}": value for name, value in (meta or {}).items()}
        headers |= extra or {}
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
                raise RuntimeError(f"the server answers {answer.status} to {method} {path}: {answer.read(300)!r}")
            if read:
                return read(answer)
            content = answer.read()
            return answer.getheader(header) if header else content
        finally:
            connection.close()


def blocks(answer):
    """A response's body in blocks of the size in which data is generated."""
    while block := answer.read(BLOCK):
        yield block


def headers_of(answer):
    return {name.lower(): value for name, value in answer.getheaders()}


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
