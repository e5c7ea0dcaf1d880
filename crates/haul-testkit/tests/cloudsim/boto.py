"""What boto3 does by default, and what it must be refused: argv is endpoint, access key, secret key, a folder to work in."""

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT, ACCESS, SECRET, FOLDER = sys.argv[1:]
MIB = 1 << 20


def client(access=ACCESS, secret=SECRET, **more):
    config = Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries={"total_max_attempts": 1})
    return boto3.client(
        "s3", endpoint_url=ENDPOINT, aws_access_key_id=access, aws_secret_access_key=secret, region_name="us-east-1",
        config=config.merge(Config(**more)),
    )


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}"
        return
    raise AssertionError(f"{code} was expected of {arguments}")


def fetch(link):
    try:
        with urllib.request.urlopen(link, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


s3 = client()
s3.create_bucket(Bucket="bucket")
s3.head_bucket(Bucket="bucket")
refused("InvalidBucketName", s3.create_bucket, Bucket="No-Name")

# In parts, with the checksums that boto3 chooses, and with others.
big = Path(FOLDER, "big")
big.write_bytes(bytes(range(256)) * (12 * MIB // 256) + b"end")
parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
for algorithm in (None, "CRC32", "SHA1", "SHA256"):
    extra = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    s3.upload_file(str(big), "bucket", "big", Config=parts, ExtraArgs=extra)
    s3.download_file("bucket", "big", str(Path(FOLDER, "back")), Config=parts)
    assert Path(FOLDER, "back").read_bytes() == big.read_bytes()
    head = s3.head_object(Bucket="bucket", Key="big", ChecksumMode="ENABLED")
    named = f"Checksum{algorithm or 'CRC32'}"
    assert named in head, head
    assert named not in s3.head_object(Bucket="bucket", Key="big")

# Whole, with each checksum; read back with it checked.
for algorithm in ("CRC32", "SHA1", "SHA256"):
    s3.put_object(Bucket="bucket", Key="small", Body=b"content", ChecksumAlgorithm=algorithm)
    assert s3.get_object(Bucket="bucket", Key="small", ChecksumMode="ENABLED")["Body"].read() == b"content"
refused("BadDigest", s3.put_object, Bucket="bucket", Key="x", Body=b"x", ChecksumCRC32="AAAAAA==")
refused("BadDigest", s3.put_object, Bucket="bucket", Key="x", Body=b"x", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")

# An upload in parts whose whole checksum is named, and one where it is not what was announced.
begun = s3.create_multipart_upload(Bucket="bucket", Key="full", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
part = s3.upload_part(Bucket="bucket", Key="full", UploadId=begun["UploadId"], PartNumber=1, Body=b"x", ChecksumAlgorithm="CRC32")
rest = {"Bucket": "bucket", "Key": "full", "UploadId": begun["UploadId"]}
listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}]}
refused("InvalidRequest", s3.complete_multipart_upload, MultipartUpload=listed, ChecksumType="COMPOSITE", **rest)
s3.complete_multipart_upload(MultipartUpload=listed, ChecksumType="FULL_OBJECT", ChecksumCRC32=part["ChecksumCRC32"], **rest)
begun = s3.create_multipart_upload(Bucket="bucket", Key="plain", ChecksumAlgorithm="SHA256")
rest = {"Bucket": "bucket", "Key": "plain", "UploadId": begun["UploadId"]}
refused("InvalidRequest", s3.upload_part, PartNumber=1, Body=b"x", ChecksumAlgorithm="SHA1", **rest)
refused("NoSuchUpload", s3.upload_part, Bucket="bucket", Key="plain", UploadId="0", PartNumber=1, Body=b"x")

# Copies, whole and in parts.
source = {"Bucket": "bucket", "Key": "big"}
s3.copy_object(Bucket="bucket", Key="copy", CopySource=source)
s3.copy(source, "bucket", "copy in parts", Config=parts)
assert s3.get_object(Bucket="bucket", Key="copy in parts")["Body"].read() == big.read_bytes()
refused("InvalidRequest", s3.copy_object, Bucket="bucket", Key="big", CopySource=source)
refused("NoSuchKey", s3.copy_object, Bucket="bucket", Key="x", CopySource={"Bucket": "bucket", "Key": "nothing"})

# Listings of odd names, page by page; many deleted at once.
names = sorted(f"odd/{name}" for name in ("a b", "a+b", "a%b", "a%20b", "ü", "a&b", "<a>", "a~b", "a*b", "d//e", " x ", "a\tb"))
for name in names:
    s3.put_object(Bucket="bucket", Key=name, Body=name.encode())
pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="odd/", PaginationConfig={"PageSize": 5})
assert sorted(entry["Key"] for page in pages for entry in page["Contents"]) == names
folders = s3.list_objects_v2(Bucket="bucket", Prefix="odd/", Delimiter="/")
assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == ["odd/d/"] and folders["KeyCount"] == len(names)
for name in names:
    assert s3.get_object(Bucket="bucket", Key=name)["Body"].read() == name.encode(), name
plain = [name for name in names if "\t" not in name]
deleted = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": name} for name in plain]})
assert len(deleted["Deleted"]) == len(plain) and "Errors" not in deleted
refused("MalformedXML", s3.delete_objects, Bucket="bucket", Delete={"Objects": [{"Key": "x"}] * 1001})

# Conditions and limits.
s3.put_object(Bucket="bucket", Key="once", Body=b"1", IfNoneMatch="*")
refused("PreconditionFailed", s3.put_object, Bucket="bucket", Key="once", Body=b"2", IfNoneMatch="*")
refused("KeyTooLongError", s3.put_object, Bucket="bucket", Key="k" * 1025, Body=b"")
refused("MetadataTooLarge", s3.put_object, Bucket="bucket", Key="m", Body=b"", Metadata={"m": "m" * 2048})
refused("InvalidRange", s3.get_object, Bucket="bucket", Key="once", Range="bytes=9-")

# Links: good, expired, changed.
link = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "once"}, ExpiresIn=60)
assert fetch(link) == (200, b"1")
assert fetch(link.replace("/once?", "/small?"))[0] == 403
short = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "once"}, ExpiresIn=1)
deadline = time.time() + 60
while fetch(short)[0] == 200 and time.time() < deadline:
    time.sleep(0.2)
status, body = fetch(short)
assert status == 403 and b"Request has expired" in body, (status, body)

# Keys.
refused("SignatureDoesNotMatch", client(secret="wrong").list_objects_v2, Bucket="bucket")
refused("InvalidAccessKeyId", client(access="nobody").list_objects_v2, Bucket="bucket")

print("all went well")
