"""Data that is the same in every run, on every machine, and checks of the tools' results."""

import base64
import hashlib
import os
import random
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISLNK

BLOCK = 16 << 20
# Number of files, or of spots of a large file, that a sampled check hashes.
SAMPLE = 64
SPOT = 1 << 20
# Modification times lie in 2020, a second and a bit apart.
FIRST_TIME_NS = 1_600_000_000_000_000_000
STEP_NS = 1_234_567_891


@dataclass(frozen=True)
class Spot:
    """A stretch of a file and its SHA-256."""

    first: int
    length: int
    sha256: str


@dataclass(frozen=True)
class File:
    """Content of a generated file."""

    key: str
    number: int
    size: int
    sha256: str
    md5: bytes
    spots: tuple

    def time_ns(self):
        return FIRST_TIME_NS + self.number * STEP_NS

    def meta(self):
        """The metadata that rclone and haul give their uploads: time, and the MD5 of what goes in parts."""
        meta = {"mtime": f"{self.time_ns() / 1e9:.9f}"}
        if self.size > BLOCK:
            meta["md5chksum"] = base64.b64encode(self.md5).decode()
        return meta


def blocks(seed, size):
    """The content of the file named `seed`: blocks of 16 MiB, incompressible, all different."""
    for first in range(0, size, BLOCK):
        yield random.Random(f"{seed}/{first}").randbytes(min(BLOCK, size - first))


def describe(key, number, size):
    """Generates a file's content once, only to learn its hashes."""
    return read(key, number, size, blocks(key, size))


def read(key, number, size, content):
    """Learns the hashes of a file whose content comes in blocks of 16 MiB."""
    whole, md5, spots = hashlib.sha256(), hashlib.md5(usedforsecurity=False), []
    # A spot at the head of evenly spread blocks, and the file's end.
    count = -(-size // BLOCK)
    step = max(1, count // SAMPLE)
    for index, block in enumerate(content):
        whole.update(block)
        if size > BLOCK:
            md5.update(block)
            if index % step == 0 or index == count - 1:
                piece = block[-SPOT:] if index == count - 1 else block[:SPOT]
                first = index * BLOCK + (len(block) - len(piece) if index == count - 1 else 0)
                spots.append(Spot(first, len(piece), hashlib.sha256(piece).hexdigest()))
    return File(key, number, size, whole.hexdigest(), md5.digest(), tuple(spots))


def names(count, folders):
    """Keys spread over `folders` directories of one or two levels, as a project's tree has them."""
    for number in range(count):
        folder = number % folders
        below = f"group-{folder // 10:02}/part-{folder:03}" if folder % 3 else f"top-{folder:03}"
        yield f"{below}/file {number:05}.dat"


def tree(count, size, folders):
    """Files of equal size under such keys."""
    return [describe(key, number, size) for number, key in enumerate(names(count, folders))]


def mixed(count, folders, total):
    """Files of which one in a hundred is large and holds its share of nine tenths of `total` bytes; the rest differ in size."""
    large = max(1, count // 100)
    small = total // 10 // (count - large)
    found = []
    for number in range(count):
        folder = number % folders
        below = f"set-{folder // 12:02}/run-{folder:03}"
        # Sizes of small files spread evenly from 0 to twice their mean.
        size = total * 9 // 10 // large if number % 100 == 50 and number // 100 < large else number * 7919 % (2 * small + 1)
        found.append(describe(f"{below}/part {number:05}.bin", number, size))
    return found


def links(files, count):
    """`count` relative links to files, by key: each beside its target, and each to another file."""
    return {f"{files[number].key}.link": os.path.basename(files[number].key) for number in range(count)}


def make_links(links_by_key, folder):
    for key, target in links_by_key.items():
        os.symlink(target, Path(folder, key))


def write(files, folder):
    """Writes the files below `folder`, with their times."""
    for file in files:
        path = Path(folder, file.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as out:
            out.writelines(blocks(file.key, file.size))
        os.utime(path, ns=(file.time_ns(), file.time_ns()))


def upload(files, server, bucket):
    """Writes the files to a bucket, without any of the tools that are compared."""
    for file in files:
        if file.size > BLOCK:
            server.put_parts(bucket, file.key, blocks(file.key, file.size), file.meta())
        else:
            server.put(bucket, file.key, b"".join(blocks(file.key, file.size)), file.meta())


def check_folder(files, folder, whole, links_by_key=None, times=0):
    """What is wrong below `folder`, or None: names, kinds, sizes, links' targets, content, and modification times to so many
    nanoseconds if asked."""
    sizes, found, stamps = {}, {}, {}
    for parent, folders, names in os.walk(folder):
        for name in names + folders:
            path = os.path.join(parent, name)
            stat = os.lstat(path)
            key = os.path.relpath(path, folder)
            if S_ISLNK(stat.st_mode):
                found[key] = os.readlink(path)
            elif not S_ISDIR(stat.st_mode):
                sizes[key], stamps[key] = stat.st_size, stat.st_mtime_ns
    if found != (links_by_key or {}):
        return f"{len(found)} links instead of {len(links_by_key or {})}, or other targets"
    late = [file.key for file in files if times and stamps.get(file.key, file.time_ns()) // times != file.time_ns() // times]
    if late:
        return f"{len(late)} files with another modification time: {late[:3]}"
    return compare(files, sizes, whole, lambda key, first, length: digest(Path(folder, key), first, length))


def check_bucket(files, server, bucket, whole):
    """What is wrong in `bucket`, or None."""
    return compare(files, server.list(bucket), whole, lambda *spot: server.digest(bucket, *spot))


def compare(files, sizes, whole, hashed):
    """Names and sizes of all files; hashes of all content, or of a sample."""
    expected = {file.key: file.size for file in files}
    if sizes != expected:
        wrong = [key for key in expected if sizes.get(key) != expected[key]] + [key for key in sizes if key not in expected]
        return f"{len(sizes)} files of {sum(sizes.values())} bytes instead of {len(files)} of {sum(expected.values())}: {wrong[:3]}"
    chosen = files if whole else files[:: max(1, len(files) // SAMPLE)]
    for file in chosen:
        spots = file.spots if file.spots and not whole else [Spot(0, None, file.sha256)]
        for spot in spots:
            if hashed(file.key, spot.first, spot.length) != spot.sha256:
                return f"wrong content: {file.key} from byte {spot.first}"
    return None


def crc64nvme(content):
    """CRC-64/NVME of bytes, slowly: for what is small."""
    crc = CRC_ONES
    for byte in content:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ CRC_ONES


def crc_step(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (CRC_POLYNOMIAL if byte & 1 else 0)
    return byte


# The reflected polynomial of the NVM Express base specification, section on the 64-bit CRC.
CRC_POLYNOMIAL, CRC_ONES = 0x9A6C9329AC4BC9B5, 0xFFFFFFFFFFFFFFFF
CRC_TABLE = [crc_step(byte) for byte in range(256)]


def digest(path, first, length):
    """SHA-256 of a file, or of `length` bytes from `first`."""
    with open(path, "rb") as file:
        file.seek(first)
        if length is not None:
            return hashlib.sha256(file.read(length)).hexdigest()
        return stream_digest(file)


def stream_digest(stream):
    """SHA-256 of all that is left in a file or a response."""
    total = hashlib.sha256()
    while block := stream.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def fingerprint(folder):
    """All that a run without changes must leave as it was: names, sizes, times, inodes."""
    total = hashlib.sha256()
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            stat = os.lstat(path)
            total.update(f"{path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}\n".encode())
    return total.hexdigest()
