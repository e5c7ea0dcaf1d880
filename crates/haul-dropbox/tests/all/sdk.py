"""What Dropbox's SDK for Python does on the simulator: `sdk.py PROXY CA`."""

import datetime
import hashlib
import sys

import dropbox
from dropbox.common import PathRoot
from dropbox.exceptions import ApiError, AuthError, HttpError
from dropbox.files import (
    CommitInfo,
    DeleteArg,
    DownloadError,
    FileMetadata,
    FolderMetadata,
    UploadSessionAppendBatchArgEntry,
    UploadSessionCursor,
    UploadSessionFinishArg,
    UploadSessionType,
    WriteMode,
)

proxy, ca = sys.argv[1:3]


def content_hash(data):
    blocks = [data[at : at + (4 << 20)] for at in range(0, len(data), 4 << 20)]
    return hashlib.sha256(b"".join(hashlib.sha256(block).digest() for block in blocks)).hexdigest()


def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiError as e:
        return e.error
    raise SystemExit(f"{call.__name__} was not refused")


def account(**credentials):
    session = dropbox.create_session(proxies={"https": proxy})
    session.trust_env, session.verify = False, ca
    return dropbox.Dropbox(session=session, max_retries_on_error=0, max_retries_on_rate_limit=0, **credentials)


try:
    account(oauth2_access_token="another").files_list_folder("")
    raise SystemExit("any token is good")
except AuthError as e:
    assert e.error.is_expired_access_token(), e

# It has no access token and asks for one.
dbx = account(oauth2_refresh_token="again", app_key="app")
assert dbx.users_get_space_usage().allocation.is_individual()
assert dbx.users_get_current_account().root_info.root_namespace_id

made = dbx.files_create_folder_v2("/sdk").metadata
assert made.name == "sdk" and made.path_lower == "/sdk", made
assert refused(dbx.files_create_folder_v2, "/SDK").get_path().get_conflict().is_folder()

when = datetime.datetime(2020, 9, 13, 12, 26, 40)
small = dbx.files_upload(b"text", "/sdk/small", client_modified=when, mute=True)
assert isinstance(small, FileMetadata) and small.size == 4 and small.client_modified.replace(tzinfo=None) == when, small
assert small.content_hash == content_hash(b"text"), small
error = refused(dbx.files_upload, b"another", "/sdk/SMALL", mode=WriteMode.add)
assert error.get_path().reason.get_conflict().is_file(), error
error = refused(dbx.files_upload, b"another", "/sdk/small", mode=WriteMode.update("0123456789"))
assert error.get_path().reason.is_conflict(), error
assert refused(dbx.files_upload, b"text", "/sdk/x", content_hash="0" * 64).is_content_hash_mismatch()
second = dbx.files_upload(b"other", "/sdk/small", mode=WriteMode.update(small.rev))
assert second.rev != small.rev
third = dbx.files_upload(b"third", "/sdk/SMALL", mode=WriteMode.overwrite)
assert third.id == small.id, third
facts, answer = dbx.files_download("/sdk/small")
assert answer.content == b"third" and facts.rev == third.rev, facts
assert refused(dbx.files_download, "/sdk/none").get_path().is_not_found()
assert refused(dbx.files_get_metadata, "/sdk/none").get_path().is_not_found()
assert isinstance(dbx.files_get_metadata("/sdk"), FolderMetadata)

# A session whose pieces come in order; a piece that comes twice is told where it should have begun.
large = bytes(range(256)) * (21 << 12)
piece = 8 << 20
session = dbx.files_upload_session_start(large[:piece]).session_id
cursor = UploadSessionCursor(session, piece)
dbx.files_upload_session_append_v2(large[piece : 2 * piece], cursor)
error = refused(dbx.files_upload_session_append_v2, large[piece : 2 * piece], cursor)
assert error.get_incorrect_offset().correct_offset == 2 * piece, error
cursor = UploadSessionCursor(session, 2 * piece)
done = dbx.files_upload_session_finish(large[2 * piece :], cursor, CommitInfo("/sdk/large", client_modified=when))
assert done.size == len(large) and done.content_hash == content_hash(large), done
error = refused(dbx.files_upload_session_append_v2, b"more", UploadSessionCursor(session, len(large)))
assert error.is_closed(), error
error = refused(dbx.files_upload_session_append_v2, b"more", UploadSessionCursor("none", 0))
assert error.is_not_found(), error

# Sessions whose pieces come in any order, and one commit for two files.
step = 4 << 20
ids = dbx.files_upload_session_start_batch(2, session_type=UploadSessionType.concurrent).session_ids
assert len(ids) == 2, ids
for id in ids:
    ends = list(range(0, len(large), step))
    for at in [*reversed(ends[:-1]), ends[-1]]:
        cursor = UploadSessionCursor(id, at)
        dbx.files_upload_session_append_v2(large[at : at + step], cursor, close=at == ends[-1])
entries = [
    UploadSessionFinishArg(UploadSessionCursor(id, len(large)), CommitInfo(f"/sdk/d/{number}", mode=WriteMode.add))
    for number, id in enumerate(ids)
]
entries.append(UploadSessionFinishArg(UploadSessionCursor("none", 0), CommitInfo("/sdk/d/none")))
ended = dbx.files_upload_session_finish_batch_v2(entries).entries
assert [entry.is_success() for entry in ended] == [True, True, False], ended
assert ended[0].get_success().content_hash == content_hash(large), ended
assert ended[2].get_failure().get_lookup_failed().is_not_found(), ended

# Sessions whose contents go by one request.
ids = dbx.files_upload_session_start_batch(2).session_ids
batch = [
    UploadSessionAppendBatchArgEntry(UploadSessionCursor(id, 0), length, close=True)
    for id, length in [(ids[0], 3), ("none", 2), (ids[1], 4)]
]
error = refused(dbx.files_upload_session_append_batch, b"one__four", batch, content_hash="0" * 64)
assert error.is_content_hash_mismatch(), error
assert refused(dbx.files_upload_session_append_batch, b"one", batch).is_length_mismatch()
ended = dbx.files_upload_session_append_batch(b"one__four", batch, content_hash=content_hash(b"one__four")).entries
assert [entry.is_success() for entry in ended] == [True, False, True], ended
assert ended[1].get_failure().is_not_found(), ended
ended = dbx.files_upload_session_append_batch(b"one__four", batch).entries
assert ended[0].get_failure().is_closed(), ended
entries = [
    UploadSessionFinishArg(UploadSessionCursor(id, size), CommitInfo(f"/sdk/e/{size}"))
    for id, size in zip(ids, [3, 4])
]
ended = dbx.files_upload_session_finish_batch_v2(entries).entries
assert [entry.get_success().content_hash for entry in ended] == [content_hash(b"one"), content_hash(b"four")], ended
dbx.files_delete_v2("/sdk/e")

copied = dbx.files_copy_v2("/sdk/large", "/sdk/copy").metadata
assert copied.content_hash == content_hash(large) and copied.id != done.id, copied
moved = dbx.files_move_v2("/sdk/copy", "/sdk/d/moved").metadata
assert moved.id == copied.id and moved.path_display == "/sdk/d/moved", moved
assert refused(dbx.files_move_v2, "/sdk/none", "/sdk/other").get_from_lookup().is_not_found()
assert refused(dbx.files_copy_v2, "/sdk/large", "/sdk/small").get_to().is_conflict()

names, page = [], dbx.files_list_folder("/sdk", recursive=True, limit=2)
while True:
    names += [entry.path_display for entry in page.entries if isinstance(entry, FileMetadata)]
    if not page.has_more:
        break
    page = dbx.files_list_folder_continue(page.cursor)
assert sorted(names) == ["/sdk/d/0", "/sdk/d/1", "/sdk/d/moved", "/sdk/large", "/sdk/small"], names
assert len(dbx.files_list_folder("/sdk").entries) == 3
assert refused(dbx.files_list_folder, "/none").get_path().is_not_found()

assert refused(dbx.files_delete_v2, "/sdk/d/moved", parent_rev="0123456789").get_path_write().is_conflict()
assert dbx.files_delete_v2("/sdk/d/moved", parent_rev=moved.rev).metadata.name == "moved"
job = dbx.files_delete_batch([DeleteArg("/sdk/d"), DeleteArg("/sdk/none")])
while True:
    state = dbx.files_delete_batch_check(job.get_async_job_id())
    if not state.is_in_progress():
        break
ended = state.get_complete().entries
assert ended[0].is_success() and ended[1].get_failure().get_path_lookup().is_not_found(), ended
assert refused(dbx.files_delete_v2, "/sdk/none").get_path_lookup().is_not_found()

# A team's space is another namespace; what others share is mounted into the person's own.
root = dbx.users_get_current_account().root_info
assert root.is_team() if hasattr(root, "is_team") else root.root_namespace_id != root.home_namespace_id, root
in_team = dbx.with_path_root(PathRoot.namespace_id(root.root_namespace_id))
in_team.files_upload(b"team", "/team/f")
assert in_team.files_download("/team/f")[1].content == b"team"
assert refused(dbx.files_get_metadata, "/team/f").get_path().is_not_found()
assert dbx.with_path_root(PathRoot.namespace_id(root.home_namespace_id)).files_get_metadata("/sdk/small").name == "small"
names, page = [], dbx.sharing_list_folders(limit=1)
while True:
    names += [(folder.name, folder.shared_folder_id, folder.path_lower) for folder in page.entries]
    if not page.cursor:
        break
    page = dbx.sharing_list_folders_continue(page.cursor)
assert [(name, path) for name, _, path in names] == [("One", None), ("Two", None)], names
mounted = dbx.sharing_mount_folder(names[1][1])
assert mounted.path_lower == "/two", mounted
assert refused(dbx.sharing_mount_folder, names[1][1]).is_already_mounted()
assert dbx.files_download("/Two/f")[1].content == b"shared"

try:
    dbx.files_get_metadata("//")
    raise SystemExit("a malformed path was taken")
except HttpError as e:
    assert e.status_code == 400, e
except dropbox.stone_validators.ValidationError:
    pass
# Who ends a log-in can do nothing more with its token.
dbx.auth_token_revoke()
try:
    dbx.files_get_metadata("/sdk/small")
    raise SystemExit("a revoked token was taken")
except dropbox.exceptions.AuthError as e:
    assert e.error.is_invalid_access_token(), e
print("passed")
