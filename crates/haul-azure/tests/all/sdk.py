"""What Microsoft's client for Python does: `sdk.py ACCOUNT SIGNATURE FILE`, with a file of 300,000 bytes that is `large` in the container
`box`, beside `d0/f000` to `d1/f019`."""

import sys

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobServiceClient

account, signature, file = sys.argv[1:4]
container = BlobServiceClient(account, credential=signature).get_container_client("box")
large = open(file, "rb").read()

# Listings that begin at a name, over pages too.
names = [f"d{number // 10}/f{number:03}" for number in range(20)] + ["large"]
assert [blob.name for blob in container.list_blobs()] == names
for start in (0, 7, 20):
    listed = [blob.name for blob in container.list_blobs(start_from=names[start], results_per_page=4)]
    assert listed == names[start:], listed

# Blocks with their CRC-64, in any order.
blob = container.get_blob_client("by the client")
half = len(large) // 2
blob.stage_block("MQ==", large[half:], validate_content="crc64")
blob.stage_block("MA==", large[:half], validate_content="crc64")
blob.commit_block_list([BlobBlock("MA=="), BlobBlock("MQ==")])
assert blob.download_blob().readall() == large

# What haul wrote in blocks.
theirs = container.get_blob_client("large")
assert theirs.download_blob().readall() == large
sizes = [block.size for block in theirs.get_block_list("committed")[0]]
assert sizes == [65536] * 4 + [300_000 - 4 * 65536], sizes

# Blocks that the service copies from another blob: all of it, a range, and only of the version that was meant.
copy = container.get_blob_client("by the client/copy")
source = theirs.url
etag = theirs.get_blob_properties().etag
copy.stage_block_from_url("MA==", source, source_offset=0, source_length=half)
copy.stage_block_from_url("MQ==", source, source_offset=half, source_length=len(large) - half, headers={"x-ms-source-if-match": etag})
copy.commit_block_list([BlobBlock("MA=="), BlobBlock("MQ==")])
assert copy.download_blob().readall() == large
copy.stage_block_from_url("MA==", source)
copy.commit_block_list([BlobBlock("MA==")])
assert copy.download_blob().readall() == large
try:
    copy.stage_block_from_url("MA==", source, headers={"x-ms-source-if-match": '"0x1"'})
    raise SystemExit("another version was copied")
except HttpResponseError as e:
    assert e.status_code == 412 and e.error_code == "SourceConditionNotMet", e
try:
    copy.stage_block_from_url("MA==", theirs.url.split("?")[0])
    raise SystemExit("what may not be read was copied")
except HttpResponseError as e:
    assert e.error_code == "CannotVerifyCopySource", e
copy.delete_blob()

print("passed")
