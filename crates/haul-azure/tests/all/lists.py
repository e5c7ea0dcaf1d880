"""How Microsoft's client for Python lists the simulator: `lists.py ACCOUNT KEY NAMES`."""

import sys

from azure.storage.blob import BlobPrefix, ContainerClient

account, key, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
container = ContainerClient(account, "box", credential=key)
names = [f"{number // 1000:04}/{number:09}" for number in range(count)]
pages = [[blob.name for blob in page] for page in container.list_blobs().by_page()]
assert sum(pages, []) == names, len(sum(pages, []))
assert [len(page) for page in pages[:-1]] == [5000] * (len(pages) - 1), [len(page) for page in pages]
small = [[blob.name for blob in page] for page in container.list_blobs(results_per_page=700).by_page()]
# It asks for so many once only.
assert sum(small, []) == names and len(small[0]) == 700
assert [blob.name for blob in container.list_blobs(name_starts_with="0003/")] == [name for name in names if name.startswith("0003/")]
folders = list(container.walk_blobs())
assert all(isinstance(folder, BlobPrefix) for folder in folders)
assert [folder.name for folder in folders] == sorted({name[:5] for name in names}), folders
assert [blob.name for blob in container.walk_blobs(name_starts_with="0001/")] == [name for name in names if name.startswith("0001/")]
# Its listings that begin at a name are those from this version of the service on.
if "start_from" in ContainerClient.list_blobs.__doc__:
    assert [blob.name for blob in container.list_blobs(start_from="0002/000002500")] == names[2500:]
assert all(blob.size == 0 and blob.etag for blob in container.list_blobs(name_starts_with="0000/"))
print("passed")
