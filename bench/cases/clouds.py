"""Google Cloud Storage and Azure Blob beside haul's own S3, at the same distance: 1,000 files of 1 MB and one large file, up and down; and a
bucket's listing beside one that goes page after page.

The servers are cloudsim, gcssim and Azurite, without latency of their own; the link before each of them has it.
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import select
import subprocess
import urllib.parse
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import data
from cases.common import Case, Command, clean_environment, remove
from cloud import Cloud
from server import cpu_seconds, free_port, quiet

FULL = {"many": (1_000, 1_000_000, 10), "one": 1_000_000_000, "keys": 1_000_000}
QUICK = {"many": (20, 1_000_000, 4), "one": 40_000_000, "keys": 20_000}
BUCKET = "clouds"
# There and back in milliseconds, and megabytes a second.
LINK = (50, 60)
# A listing's page takes so long at a cloud.
FAR = (100, 60)
# Azurite's account and its key, which is no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def cases(quick):
    size = QUICK if quick else FULL
    found = []
    for kind in ("many", "one"):
        found += [Up(f"clouds-up-{kind}", kind, size), Down(f"clouds-down-{kind}", kind, size)]
    return [*found, List("clouds-list", size["keys"]), ListAzure("clouds-list-azure", size["keys"])]


class Program:
    """A program of the workspace that tells one line and ends with its standard input; a context manager."""

    def __init__(self, *argv):
        self.argv = [str(word) for word in argv]

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        words = self.process.stdout.readline().split() if ready else []
        if len(words) != 2:
            self.__exit__()
            raise RuntimeError(f"{self.argv[0]} did not start")
        self.told = words[1]
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)


class Azurite:
    """Azurite on a free port; a context manager."""

    def __init__(self, binary, folder):
        self.port, self.folder = free_port(), Path(folder)
        self.argv = [binary, "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", str(self.port)]

    def __enter__(self):
        self.folder.mkdir()
        self.process = quiet([*self.argv, "--location", str(self.folder)], clean_environment(self.folder))
        for _ in range(600):
            try:
                http.client.HTTPConnection("127.0.0.1", self.port, timeout=2).connect()
                return self
            except OSError:
                select.select([], [], [], 0.1)
        raise RuntimeError("Azurite did not start within a minute")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        remove(self.folder)

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def stored(self):
        """Sizes of the container's blobs by their names."""
        sizes, marker = {}, ""
        while True:
            query = {"comp": "list", "restype": "container", **({"marker": marker} if marker else {})}
            date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
            headers = {"x-ms-date": date, "x-ms-version": "2021-12-02"}
            lines = ["GET", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items()), f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}"]
            text = "\n".join([*lines, *(f"{name}:{query[name]}" for name in sorted(query))])
            proof = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
            headers["Authorization"] = f"SharedKey {ACCOUNT}:{proof}"
            root = ElementTree.fromstring(get(self.port, f"/{ACCOUNT}/{BUCKET}?{urllib.parse.urlencode(query)}", headers))
            for blob in root.iter("Blob"):
                sizes[blob.findtext("Name")] = int(blob.findtext("Properties/Content-Length"))
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return sizes


def get(port, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the server answers {answer.status} to {path}: {body[:300]!r}")
    return body


def google_stored(port):
    """Sizes of the bucket's objects by their names."""
    sizes, token = {}, ""
    while True:
        query = urllib.parse.urlencode({"pageToken": token} if token else {})
        page = json.loads(get(port, f"/storage/v1/b/{BUCKET}/o?{query}", {}))
        sizes |= {item["name"]: int(item["size"]) for item in page.get("items", [])}
        token = page.get("nextPageToken", "")
        if not token:
            return sizes


class Stores(Case):
    """The three stores, each behind a link: the remotes `s3:`, `gcs:` and `az:`."""

    servers = ("cloudsim", "gcssim", "link", "azurite-blob")
    limit = 1_800

    def prepare(self, folder, tools, stack):
        self.folder = folder
        self.s3 = stack.enter_context(Cloud(tools.paths["cloudsim"]))
        self.google = stack.enter_context(Program(tools.paths["gcssim"]))
        self.azure = stack.enter_context(Azurite(tools.paths["azurite-blob"], Path(folder, "azurite")))
        self.google_port = urllib.parse.urlsplit(self.google.told).port
        self.near = self.remotes(self.s3.port, self.google_port, self.azure.port)
        ports = (self.s3.port, self.google_port, self.azure.port)
        links = [stack.enter_context(Program(tools.paths["link"], *LINK, port)) for port in ports]
        self.far = self.remotes(*(int(link.told) for link in links))
        self.endpoints = [self.s3, self.google, self.azure, *links]
        self.haul = tools.paths["haul"]

    def remotes(self, s3, google, azure):
        config = self.s3.remote("s3") | {"RCLONE_CONFIG_S3_ENDPOINT": f"http://127.0.0.1:{s3}"}
        return config | google_remote(google) | azure_remote(azure)

    def environment(self, command):
        return super().environment(command) | self.far

    def run(self, *words):
        """Prepares by haul itself, without the link."""
        subprocess.run([self.haul, *words], env=clean_environment(self.folder) | self.near, check=True, capture_output=True)

    def stored(self, command):
        match command.label:
            case "haul":
                lines = (line.split(" ", 2) for line in self.s3.stored(BUCKET))
                return {key: int(size) for size, _, key in lines}
            case "haul gcs":
                return google_stored(self.google_port)
            case _:
                return self.azure.stored()


def google_remote(port):
    return {
        "RCLONE_CONFIG_GCS_TYPE": "google cloud storage",
        "RCLONE_CONFIG_GCS_ANONYMOUS": "true",
        "RCLONE_CONFIG_GCS_PROJECT_NUMBER": "1",
        "RCLONE_CONFIG_GCS_ENDPOINT": f"http://127.0.0.1:{port}/storage/v1/",
    }


def azure_remote(port):
    return {
        "RCLONE_CONFIG_AZ_TYPE": "azureblob",
        "RCLONE_CONFIG_AZ_ACCOUNT": ACCOUNT,
        "RCLONE_CONFIG_AZ_KEY": KEY,
        "RCLONE_CONFIG_AZ_USE_EMULATOR": "true",
        "RCLONE_CONFIG_AZ_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
    }


REMOTES = {"haul": "s3", "haul gcs": "gcs", "haul azure": "az"}


class Copies(Stores):
    """One direction, one kind of data. `haul` is on S3."""

    def __init__(self, name, kind, size):
        super().__init__()
        self.name = name
        if kind == "many":
            count, each, folders = size["many"]
            self.plan = [(file, number, each) for number, file in enumerate(data.names(count, folders))]
        else:
            self.plan = [("big.bin", 0, size["one"])]
        each = self.plan[0][2]
        self.what = f"{len(self.plan):,} × {each / 1e6:g} MB, {self.way}, over S3 (cloudsim), gcs (gcssim) and Azure (Azurite), link of {LINK[0]} ms, {LINK[1]} MB/s"
        self.bytes = len(self.plan) * each
        # Two of the servers keep everything in memory.
        self.memory = 4 * self.bytes

    def need(self):
        return int(3.3 * self.bytes)

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.local = Path(folder, "files")
        self.files = [data.describe(key, number, size) for key, number, size in self.plan]
        data.write(self.files, self.local)
        for remote in REMOTES.values():
            self.run("mkdir", f"{remote}:{BUCKET}")

    def commands(self):
        for label, remote in REMOTES.items():
            there = f"{remote}:{BUCKET}"
            yield Command(label, "haul", ["copy", *self.ends(there)])


class Up(Copies):
    """From a folder into an empty bucket; names and sizes are compared, and each server has compared checksums."""

    way = "up"

    def ends(self, there):
        return f"{self.local}/", there

    def fresh(self, command):
        self.run("delete", f"{REMOTES[command.label]}:{BUCKET}")

    def check(self, command, _run, _whole):
        expected = {file.key: file.size for file in self.files}
        found = self.stored(command)
        return None if found == expected else f"{len(found)} keys instead of {len(expected)}, or other sizes"


class Down(Copies):
    """From a bucket into a fresh folder."""

    way = "down"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.out = Path(folder, "out")
        for remote in REMOTES.values():
            self.run("copy", f"{self.local}/", f"{remote}:{BUCKET}")

    def ends(self, there):
        return there, f"{self.out}/"

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.out, whole)

    def discard(self, _command):
        remove(self.out)


class List(Case):
    """The names of a bucket of Google's; rclone asks for one page after the other."""

    servers = ("gcssim", "link")
    tools = ("rclone",)
    limit = 1_800
    runs = 1
    there = f"gcs:{BUCKET}"

    def __init__(self, name, keys):
        super().__init__()
        self.name, self.keys = name, keys
        self.what = f"names of {keys:,} objects, {self.servers[0]}, link of {FAR[0]} ms"
        self.memory = keys * 2_000

    def need(self):
        return self.keys * 50

    def prepare(self, folder, tools, stack):
        self.folder = folder
        self.server = stack.enter_context(Program(tools.paths[self.servers[0]], *self.words()))
        link = stack.enter_context(Program(tools.paths["link"], *FAR, self.port()))
        self.endpoints, self.remote = [self.server, link], self.reached_by(int(link.told))
        self.out = Path(folder, "out")

    def words(self):
        return [BUCKET, self.keys]

    def port(self):
        return urllib.parse.urlsplit(self.server.told).port

    def reached_by(self, port):
        return google_remote(port)

    def environment(self, command):
        return super().environment(command) | self.remote

    def commands(self):
        yield Command("haul", "haul", ["lsf", "-R", "--files-only", self.there])
        yield Command("rclone fast-list", "rclone", ["lsf", "-R", "--files-only", "--fast-list", self.there], once=True)

    def output(self, _command):
        return self.out, None

    def check(self, _command, _run, _whole):
        found = {line.rstrip("\n") for line in open(self.out, encoding="utf-8")}
        expected = {f"{number // 1000:04}/{number:09}" for number in range(self.keys)}
        return None if found == expected else f"{len(found)} names instead of {len(expected)}"

    def discard(self, _command):
        self.out.unlink(missing_ok=True)


class ListAzure(List):
    """The same of a container of Azure's, whose pages are five times as long."""

    servers = ("loginsim", "link")
    there = f"az:{BUCKET}"

    def words(self):
        return ["azure", f"names={self.keys}"]

    def port(self):
        return urllib.parse.urlsplit(json.loads(self.server.told)["options"]["endpoint"]).port

    def reached_by(self, port):
        # Azurite can't begin a listing at a name. This simulator can, as Azure.
        return {name: value for name, value in azure_remote(port).items() if not name.endswith("_USE_EMULATOR")}
