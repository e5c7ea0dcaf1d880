"""What Microsoft's SDK for Python does on the simulator: `sdk.py ENDPOINT TOKEN`."""

import asyncio
import datetime
import sys
from urllib.parse import urlsplit

import httpx
from kiota_abstractions.api_error import APIError
from kiota_abstractions.authentication import AccessTokenProvider, AllowedHostsValidator, BaseBearerTokenAuthenticationProvider
from kiota_abstractions.base_request_configuration import RequestConfiguration
from kiota_serialization_json.json_parse_node_factory import JsonParseNodeFactory
from msgraph import GraphServiceClient
from msgraph.generated.drives.item.items.item.children.children_request_builder import ChildrenRequestBuilder
from msgraph.generated.drives.item.items.item.copy.copy_post_request_body import CopyPostRequestBody
from msgraph.generated.drives.item.items.item.create_upload_session.create_upload_session_post_request_body import (
    CreateUploadSessionPostRequestBody,
)
from msgraph.generated.models.drive_item import DriveItem
from msgraph.generated.models.drive_item_uploadable_properties import DriveItemUploadableProperties
from msgraph.generated.models.file_system_info import FileSystemInfo
from msgraph.generated.models.folder import Folder
from msgraph.generated.models.item_reference import ItemReference
from msgraph.generated.models.upload_session import UploadSession
from msgraph.graph_request_adapter import GraphRequestAdapter
from msgraph_core.tasks import PageIterator

endpoint, access = sys.argv[1:3]


class Token(AccessTokenProvider):
    """Only the service itself is told the token: the addresses of sessions and downloads are good by themselves."""

    async def get_authorization_token(self, uri, additional_authentication_context={}):
        return access if urlsplit(uri).path.startswith("/v1.0/") else ""

    def get_allowed_hosts_validator(self):
        return AllowedHostsValidator([])


def parsed(answer, model):
    node = JsonParseNodeFactory().get_root_parse_node("application/json", answer.content)
    return node.get_object_value(model)


async def refused(call):
    try:
        await call
    except APIError as e:
        return e.response_status_code, getattr(e.error, "code", None)
    raise SystemExit("it was not refused")


async def main():
    adapter = GraphRequestAdapter(BaseBearerTokenAuthenticationProvider(Token()))
    adapter.base_url = endpoint + "/v1.0"
    client = GraphServiceClient(request_adapter=adapter)
    drive = await client.me.drive.get()
    assert drive.id and drive.quota.total > drive.quota.used, drive
    items = client.drives.by_drive_id(drive.id).items
    by_path = lambda path: items.by_drive_item_id(f"root:/{path}:")
    behaviour = lambda what: {"@microsoft.graph.conflictBehavior": what}

    new = lambda what: DriveItem(name="sdk", folder=Folder(), additional_data=behaviour(what))
    folder = await items.by_drive_item_id("root").children.post(new("fail"))
    assert folder.name == "sdk" and folder.folder.child_count == 0, folder
    assert await refused(items.by_drive_item_id("root").children.post(new("fail"))) == (409, "nameAlreadyExists")

    small = await by_path("sdk/small").content.put(b"text")
    assert small.size == 4 and small.file.hashes.quick_xor_hash, small
    assert small.parent_reference.id == folder.id, small.parent_reference
    again = await by_path("sdk/SMALL").content.put(b"other")
    assert again.id == small.id and again.c_tag != small.c_tag, "names that differ by case are one"
    assert await items.by_drive_item_id(small.id).content.get() == b"other"
    found = await by_path("sdk/small").get()
    assert found.id == small.id and found.e_tag == again.e_tag, found
    assert (await refused(by_path("sdk/none").get())) == (404, "itemNotFound")

    when = datetime.datetime(2020, 9, 13, 12, 26, 40, tzinfo=datetime.timezone.utc)
    times = FileSystemInfo(last_modified_date_time=when)

    async def session(path, what):
        properties = DriveItemUploadableProperties(file_system_info=times, additional_data=behaviour(what))
        body = CreateUploadSessionPostRequestBody(item=properties)
        return await by_path(path).create_upload_session.post(body)

    # In pieces of multiples of 320 KiB, each a plain request, as the documentation of sessions has it (the SDK's own task for this
    # sends a byte too many from the second piece on). Their address is good without a token.
    large = bytes(range(256)) * (21 << 12)
    piece = 25 * 320 << 10
    made = await session("sdk/d/large", "fail")
    assert made.next_expected_ranges == ["0-"], made
    async with httpx.AsyncClient() as plain:
        for at in range(0, len(large), piece):
            part = large[at : at + piece]
            span = f"bytes {at}-{at + len(part) - 1}/{len(large)}"
            answer = await plain.put(made.upload_url, content=part, headers={"Content-Range": span})
            if at + len(part) < len(large):
                assert answer.status_code == 202, answer
                expected = parsed(answer, UploadSession).next_expected_ranges
                assert expected[0].split("-")[0] == str(at + len(part)), expected
        assert answer.status_code == 201, answer
        cut = await session("sdk/cut", "fail")
        span = f"bytes 0-{piece - 1}/{len(large)}"
        await plain.put(cut.upload_url, content=large[:piece], headers={"Content-Range": span})
        state = parsed(await plain.get(cut.upload_url), UploadSession)
        assert state.next_expected_ranges[0].split("-")[0] == str(piece), state
        assert (await plain.delete(cut.upload_url)).status_code == 204
        assert (await plain.get(cut.upload_url)).status_code == 404
    made = parsed(answer, DriveItem)
    assert made.size == len(large) and made.file_system_info.last_modified_date_time == when, made
    assert await items.by_drive_item_id(made.id).content.get() == large
    assert await refused(session("sdk/d/large", "fail")) == (409, "nameAlreadyExists")
    versions = await items.by_drive_item_id(made.id).versions.get()
    assert len(versions.value) == 1, "one version, whose times are right from the beginning"
    assert (await refused(by_path("sdk/cut").get())) == (404, "itemNotFound")

    copied = CopyPostRequestBody(name="copy", parent_reference=ItemReference(drive_id=drive.id, id=folder.id))
    await items.by_drive_item_id(made.id).copy.post(copied)
    copy = await by_path("sdk/copy").get()
    assert copy.size == len(large) and copy.file.hashes.quick_xor_hash == made.file.hashes.quick_xor_hash, copy
    below = await by_path("sdk/d").get()
    to = DriveItem(name="moved", parent_reference=ItemReference(id=below.id), file_system_info=times)
    moved = await items.by_drive_item_id(copy.id).patch(to)
    assert moved.id == copy.id and moved.name == "moved" and moved.parent_reference.id == below.id, moved

    names = []
    parameters = ChildrenRequestBuilder.ChildrenRequestBuilderGetQueryParameters(top=1)
    page = await items.by_drive_item_id(folder.id).children.get(RequestConfiguration(query_parameters=parameters))
    assert len(page.value) == 1 and page.odata_next_link, page
    await PageIterator(page, adapter).iterate(lambda item: names.append(item.name) or True)
    assert sorted(names) == ["d", "small"], names
    changes = await items.by_drive_item_id("root").delta.get()
    names = {item.name for item in changes.value if item.file}
    assert names == {"f", "small", "large", "moved"}, names
    assert changes.odata_delta_link, changes

    def only(tag):
        configuration = RequestConfiguration()
        configuration.headers.add("If-Match", tag)
        return configuration

    item = items.by_drive_item_id(moved.id)
    assert (await refused(item.delete(only(copy.e_tag))))[0] == 412, "another version is deleted by nobody"
    await item.delete(only(moved.e_tag))
    assert await refused(item.get()) == (404, "itemNotFound")
    await items.by_drive_item_id(folder.id).delete()
    assert await refused(items.by_drive_item_id(made.id).get()) == (404, "itemNotFound")
    # What haul wrote, and something for haul to read.
    assert await by_path("before/f").content.get() == b"text"
    await by_path("kept").content.put(b"kept")
    print("passed")


asyncio.run(main())
