"""What Microsoft's client for Python does on an account with directories of its own: `hierarchical.py ACCOUNT SIGNATURE`, with the
container `box` that holds `a-b`, `a.txt`, `z` and `é/ü`."""

import sys

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient

account, signature = sys.argv[1:3]
service = BlobServiceClient(account, credential=signature)
assert service.get_account_information()["is_hns_enabled"] is True
container = service.get_container_client("box")
container.upload_blob("py/empty/x", b"text")
folders = [blob.name for blob in container.list_blobs(include=["metadata"]) if (blob.metadata or {}).get("hdi_isfolder") == "true"]
assert folders == ["py", "py/empty", "é"], folders
assert container.get_blob_client("py/empty").get_blob_properties().size == 0
try:
    container.delete_blob("py/empty")
    raise SystemExit("a directory was deleted with what is in it")
except HttpResponseError as e:
    assert e.status_code == 409 and e.error_code == "DirectoryIsNotEmpty", e
container.delete_blob("py/empty/x")
print("passed")
