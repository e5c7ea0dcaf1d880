"""What Google's client for Python does on the simulator: `sdk.py ENDPOINT TOKEN ACCOUNT`, with a token as JSON and the file of a service
account that reaches one shared drive."""

import hashlib
import io
import json
import sys

import google.oauth2.credentials
import google.oauth2.service_account
import googleapiclient.discovery
import googleapiclient.discovery_cache
import googleapiclient.http
from googleapiclient.errors import HttpError

endpoint, token, account = sys.argv[1:4]
document = json.loads(googleapiclient.discovery_cache.get_static_doc("drive", "v3"))
document.update(rootUrl=endpoint + "/", baseUrl=endpoint + "/drive/v3/")
document.pop("mtlsRootUrl", None)


def drive(credentials):
    return googleapiclient.discovery.build_from_document(document, credentials=credentials)


def refused(request):
    try:
        request.execute()
    except HttpError as e:
        return e.status_code, e.error_details[0]["reason"]
    raise SystemExit(f"{request.uri} was not refused")


token = json.loads(token)
user = google.oauth2.credentials.Credentials(
    None,
    refresh_token=token["refresh_token"],
    token_uri=endpoint + "/token",
    client_id="app",
    client_secret="secret",
)
# It has no access token and asks for one.
files = drive(user).files()


def media(data, **options):
    return googleapiclient.http.MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream", **options)


def content(id, **options):
    into = io.BytesIO()
    download = googleapiclient.http.MediaIoBaseDownload(into, files.get_media(fileId=id), **options)
    done = False
    while not done:
        _, done = download.next_chunk()
    return into.getvalue()


folder = files.create(body={"name": "sdk", "mimeType": "application/vnd.google-apps.folder"}).execute()
assert folder["kind"] == "drive#file" and folder["name"] == "sdk", folder
FACTS = "id,name,size,md5Checksum,sha1Checksum,sha256Checksum,modifiedTime,parents,headRevisionId,trashed,mimeType"

# One request with both facts and content.
when = "2020-09-13T12:26:40.000Z"
body = {"name": "small", "parents": [folder["id"]], "modifiedTime": when}
small = files.create(body=body, media_body=media(b"text"), fields=FACTS).execute()
assert small["size"] == "4" and small["md5Checksum"] == hashlib.md5(b"text").hexdigest(), small
assert small["sha256Checksum"] == hashlib.sha256(b"text").hexdigest() and small["modifiedTime"] == when, small
assert small["parents"] == [folder["id"]], small
assert content(small["id"]) == b"text"
# A second file of that name is a second file.
twin = files.create(body=body, media_body=media(b"twin"), fields=FACTS).execute()
assert twin["id"] != small["id"], twin
replaced = files.update(fileId=small["id"], media_body=media(b"other"), fields=FACTS).execute()
assert replaced["id"] == small["id"] and replaced["headRevisionId"] != small["headRevisionId"], replaced

# By ids that were asked for first, a repeated request makes no second file.
own = files.generateIds(count=2).execute()["ids"]
assert len(own) == 2 and own[0] != own[1], own
named = {"id": own[0], "name": "own", "parents": [folder["id"]]}
assert files.create(body=named, media_body=media(b"own")).execute()["id"] == own[0]
assert refused(files.create(body=named, media_body=media(b"own"))) == (409, "fileIdInUse")

# In pieces.
large = bytes(range(256)) * (21 << 12)
piece = 8 << 20
request = files.create(
    body={"name": "large", "parents": [folder["id"]]},
    media_body=media(large, chunksize=piece, resumable=True),
    fields=FACTS,
)
state, made = request.next_chunk()
assert made is None and state.resumable_progress == piece, state
while made is None:
    state, made = request.next_chunk()
assert made["md5Checksum"] == hashlib.md5(large).hexdigest(), made
assert content(made["id"], chunksize=3 << 20) == large
request = files.update(fileId=made["id"], media_body=media(b"again", resumable=True), fields=FACTS)
state, again = request.next_chunk()
assert again["id"] == made["id"] and again["size"] == "5", again

copy = files.copy(fileId=small["id"], body={"name": "copy", "parents": [folder["id"]]}, fields=FACTS).execute()
assert copy["md5Checksum"] == replaced["md5Checksum"] and copy["id"] != small["id"], copy
below = {"name": "b'elow", "mimeType": "application/vnd.google-apps.folder", "parents": [folder["id"]]}
below = files.create(body=below).execute()
moved = files.update(
    fileId=copy["id"], addParents=below["id"], removeParents=folder["id"], body={"name": "moved"}, fields=FACTS
).execute()
assert moved["parents"] == [below["id"]] and moved["name"] == "moved", moved

# Pages, by folders and by names.
query, names = f"'{folder['id']}' in parents and trashed = false", []
request = files.list(q=query, pageSize=2, fields="nextPageToken,files(id,name)")
while request is not None:
    page = request.execute()
    assert len(page["files"]) <= 2, page
    names += [file["name"] for file in page["files"]]
    request = files.list_next(request, page)
assert sorted(names) == ["b'elow", "large", "own", "small", "small"], names
both = f"('{folder['id']}' in parents or '{below['id']}' in parents) and name = 'moved' and trashed = false"
assert [file["id"] for file in files.list(q=both).execute()["files"]] == [moved["id"]]
quoted = "name = 'b\\'elow' and mimeType = 'application/vnd.google-apps.folder'"
assert [file["id"] for file in files.list(q=quoted).execute()["files"]] == [below["id"]]
assert refused(files.list(q="name is 'x'"))[0] == 400

assert refused(files.get(fileId="none")) == (404, "notFound")
assert files.update(fileId=twin["id"], body={"trashed": True}, fields=FACTS).execute()["trashed"]
assert len(files.list(q=query + " and name = 'small'").execute()["files"]) == 1
assert files.delete(fileId=below["id"]).execute() == ""
assert refused(files.get(fileId=moved["id"])) == (404, "notFound"), "what was in a folder is gone with it"

about = drive(user).about().get(fields="user,storageQuota").execute()
assert int(about["storageQuota"]["limit"]) > int(about["storageQuota"]["usage"]), about

# A service account signs its own requests for tokens.
signed = google.oauth2.service_account.Credentials.from_service_account_file(
    account, scopes=["https://www.googleapis.com/auth/drive"]
)
service = drive(signed)
shared = service.drives().list().execute()["drives"]
assert [drive["name"] for drive in shared] == ["shared"], shared
everywhere = {"supportsAllDrives": True, "includeItemsFromAllDrives": True, "corpora": "drive", "driveId": shared[0]["id"]}
body = {"name": "there", "parents": [shared[0]["id"]]}
there = service.files().create(body=body, media_body=media(b"there"), supportsAllDrives=True).execute()
found = service.files().list(q="trashed = false", **everywhere).execute()["files"]
assert [file["id"] for file in found] == [there["id"]], found
assert refused(service.files().get(fileId=there["id"])) == (404, "notFound"), "who doesn't ask for drives has none"
print("passed")
