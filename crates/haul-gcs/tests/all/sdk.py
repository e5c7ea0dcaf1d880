"""What Google's client for Python does on the simulator: `sdk.py ENDPOINT TOKEN FILE`, with a file of 11 MiB that is `before/d/large` there."""

import base64
import io
import sys

import google_crc32c
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager
from google.cloud.storage.exceptions import InvalidResponse
from google.oauth2.credentials import Credentials

endpoint, token, file = sys.argv[1:4]
client = storage.Client(project="1", credentials=Credentials(token), client_options={"api_endpoint": endpoint})
large = open(file, "rb").read()


def refused(call, *args, **options):
    try:
        call(*args, **options)
    except exceptions.GoogleAPICallError as e:
        return e.code
    except InvalidResponse as e:
        return e.response.status_code
    raise SystemExit("it was not refused")


bucket = client.create_bucket("sdk")
assert refused(client.create_bucket, "sdk") == 409
assert {found.name for found in client.list_buckets()} == {"before", "sdk"}

# In parts at once, each with a checksum that both sides compute.
blob = bucket.blob("in/parts é")
blob.metadata = {"note": "x"}
transfer_manager.upload_chunks_concurrently(
    file, blob, content_type="text/x", chunk_size=5 << 20, worker_type=transfer_manager.THREAD, checksum="crc32c"
)
blob.reload()
assert (blob.size, blob.md5_hash, blob.metadata, blob.content_type) == (len(large), None, {"note": "x"}, "text/x"), blob
assert base64.b64decode(blob.crc32c) == google_crc32c.Checksum(large).digest(), blob.crc32c
transfer_manager.upload_chunks_concurrently(
    file, bucket.blob("md5"), chunk_size=6 << 20, worker_type=transfer_manager.THREAD, checksum="md5"
)
assert bucket.blob("md5").download_as_bytes() == large
small = transfer_manager.upload_chunks_concurrently
assert refused(small, file, bucket.blob("none"), chunk_size=1 << 20, worker_type=transfer_manager.THREAD) == 400
assert bucket.get_blob("none") is None, "parts that are too small make no object"

# By one request and by a session; conditions.
one = bucket.blob("d/one")
one.upload_from_string(b"text", if_generation_match=0, checksum="md5")
assert one.md5_hash and one.size == 4, one
assert refused(bucket.blob("d/one").upload_from_string, b"other", if_generation_match=0) == 412
generation = one.generation
one.upload_from_string(b"other", if_generation_match=generation)
assert one.generation != generation and one.download_as_bytes() == b"other"
assert refused(bucket.blob("d/one", generation=generation).download_as_bytes) == 404
session = bucket.blob("d/session", chunk_size=1 << 20)
session.upload_from_file(io.BytesIO(large), size=len(large), checksum="crc32c")
assert session.download_as_bytes(start=5, end=1 << 20) == large[5 : (1 << 20) + 1]
assert session.download_as_bytes(checksum="crc32c") == large

# Metadata: what isn't named stays.
one.metadata = {"a": "1", "b": "2"}
one.patch()
one.metadata = {"a": None}
one.patch()
one.reload()
assert one.metadata == {"b": "2"} and one.metageneration == 3, one.metadata

# Copies inside the service.
copied = bucket.copy_blob(one, bucket, "copied")
assert copied.md5_hash == one.md5_hash and copied.metadata == one.metadata, copied
again = bucket.blob("again")
tokens, rewritten, size = again.rewrite(session)
assert tokens is None and rewritten == size == len(large)

# Listings: pages, folders, ranges.
names = [blob.name for blob in client.list_blobs("sdk", page_size=2)]
assert names == ["again", "copied", "d/one", "d/session", "in/parts é", "md5"], names
listing = client.list_blobs("sdk", delimiter="/")
assert [blob.name for blob in listing] == ["again", "copied", "md5"] and listing.prefixes == {"d/", "in/"}, listing.prefixes
names = [blob.name for blob in client.list_blobs("sdk", start_offset="copied", end_offset="in/", fields="items(name)")]
assert names == ["copied", "d/one", "d/session"], names

# Several requests in one, each answered by itself.
with client.batch(raise_exception=False) as batch:
    bucket.delete_blob("copied")
    bucket.delete_blob("never was")
    bucket.delete_blob("again", if_generation_match=1)
assert [answer.status_code for answer in batch._responses] == [204, 404, 412], batch._responses
assert {blob.name for blob in client.list_blobs("sdk", prefix="")} >= {"again", "d/one"}
assert bucket.get_blob("copied") is None

# What haul wrote in parts.
theirs = client.bucket("before").get_blob("d/large")
assert theirs.md5_hash is None and theirs.download_as_bytes(checksum="crc32c") == large
assert refused(client.bucket("none").blob("x").upload_from_string, b"x") == 404
print("passed")
