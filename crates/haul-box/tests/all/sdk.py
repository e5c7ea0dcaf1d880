"""What Box's SDK for Python does on the simulator: `sdk.py ENDPOINT TOKEN`."""

import io, sys, hashlib
from box_sdk_gen import *
from box_sdk_gen.managers.uploads import *
from box_sdk_gen.managers.folders import *
from box_sdk_gen.managers.files import *

base, token = sys.argv[1:3]
urls = BaseUrls(base_url=base, upload_url=base + '/api', oauth_2_url=base)
client = BoxClient(auth=BoxDeveloperTokenAuth(token=token),
    network_session=NetworkSession(base_urls=urls))
folder = client.folders.create_folder('sdk', CreateFolderParent(id='0'))
try:
    client.folders.create_folder('SDK', CreateFolderParent(id='0'))
    raise SystemExit('it was made twice')
except BoxAPIError as e:
    assert e.response_info.status_code == 409, e
    assert e.response_info.code == 'item_name_in_use', e
attributes = UploadFileAttributes(name='small', parent=UploadFileAttributesParentField(id=folder.id))
sha1 = hashlib.sha1(b'text').hexdigest()
small = client.uploads.upload_file(attributes, io.BytesIO(b'text'), content_md_5=sha1).entries[0]
assert small.sha_1 == sha1 and small.size == 4, small
try:
    client.uploads.preflight_file_upload_check(name='small', parent=PreflightFileUploadCheckParent(id=folder.id))
    raise SystemExit('the name is free')
except BoxAPIError as e:
    assert e.response_info.context_info['conflicts']['id'] == small.id, e
version = client.uploads.upload_file_version(small.id, UploadFileVersionAttributes(name='small'), io.BytesIO(b'other'))
assert version.entries[0].id == small.id and version.entries[0].etag == '1', version
assert client.downloads.download_file(small.id).read() == b'other'
large = bytes(range(256)) * (21 << 12)
made = client.chunked_uploads.upload_big_file(io.BytesIO(large), 'large', len(large), folder.id)
assert made.sha_1 == hashlib.sha1(large).hexdigest(), made
assert client.downloads.download_file(made.id).read() == large
copy = client.files.copy_file(made.id, CopyFileParent(id=folder.id), name='copy')
moved = client.files.update_file_by_id(copy.id, name='moved')
names, marker = [], None
while True:
    page = client.folders.get_folder_items(folder.id, usemarker=True, limit=1, marker=marker)
    names += [entry.name for entry in page.entries]
    marker = page.next_marker
    if not marker:
        break
assert sorted(names) == ['large', 'moved', 'small'], names
try:
    client.files.delete_file_by_id(moved.id, if_match='0')
    raise SystemExit('another version was deleted')
except BoxAPIError as e:
    assert e.response_info.status_code == 412, e
client.files.delete_file_by_id(moved.id, if_match='1')
try:
    client.folders.delete_folder_by_id(folder.id)
    raise SystemExit('a full folder was deleted')
except BoxAPIError as e:
    assert e.response_info.code == 'folder_not_empty', e
# Who ends a log-in can do nothing more with its token.
auth = BoxOAuth(config=OAuthConfig(client_id='app', client_secret='secret'))
auth.token_storage.store(AccessToken(access_token=token, refresh_token='refresh-0'))
auth.revoke_token(network_session=client.network_session)
try:
    client.users.get_user_me()
    raise SystemExit('a revoked token was taken')
except (BoxAPIError, BoxSDKError):
    pass
print('passed')
