"""Clouds that people log in to: Drive, Dropbox, OneDrive and Box up and down, Drive's listing, and an encrypted remote beside a plain one.

The clouds are simulators of the workspace on which real rclone passes. Clients reach them as they reach the services: by TLS, through a
proxy that ends it for their hosts (OneDrive's address is an option, so it is reached without). All but what only downloads finds an empty
cloud each time.
"""

import contextlib
import json
import subprocess
from pathlib import Path

import data
from cases.clouds import Program
from cases.common import Case, Command, remove
from server import Minio

FULL = {
    "drive": (1_000, 1_000_000, 10),
    # Files created a second: Google's three would take six minutes a run.
    "rate": (25, 1_000),
    "slow": (3, 150),
    "folders": 10_000,
    "dropbox": (5_000, 1_000, 50),
    "writes": 2,
    "onedrive": (300, 1_000_000, 10),
    "box": (300, 1_000_000, 10),
    "one": 500_000_000,
    "crypt": 5_000_000_000,
}
QUICK = {
    "drive": (20, 100_000, 4),
    "rate": (25, 20),
    "slow": (10, 20),
    "folders": 300,
    "dropbox": (60, 1_000, 5),
    "writes": 20,
    "onedrive": (10, 100_000, 2),
    "box": (10, 100_000, 2),
    "one": 60_000_000,
    "crypt": 60_000_000,
}
# Delay of each answer in milliseconds.
LATENCY = 100
REMOTE = "CLOUD"
# What rclone's documentation recommends for many files, with Google's quota for a client id of one's own.
BEST = ["--transfers", "64", "--checkers", "64"]
DRIVE = [*BEST, "--fast-list", "--drive-pacer-min-sleep", "10ms", "--drive-pacer-burst", "200"]
DROPBOX = [
    *[*BEST, "--dropbox-pacer-min-sleep", "1ms", "--dropbox-batch-mode", "async"],
    *["--dropbox-batch-size", "1000", "--dropbox-batch-timeout", "500ms"],
]
FEW = ["--transfers", "16", "--checkers", "16"]
# An obscured password, as config files hold it.
PASSWORD = "yFRbziZrxNvXe4dTm9n5ybfttfgGxBDUNA"


def cases(quick):
    size = QUICK if quick else FULL
    count, each, folders = size["drive"]
    found = []
    for name, (rate, files) in (("logins-drive-up", size["rate"]), ("logins-drive-slow", size["slow"])):
        what = f"{{}}, Drive, {rate} files created a second"
        found.append(Up(name, what, "drive", {"rate": rate}, data.names(files, folders), each, DRIVE))
    found.append(Down("logins-drive-down", "{}, Drive", "drive", {}, data.names(count, folders), each, DRIVE))
    found.append(List("logins-drive-list", size["folders"]))
    count, each, folders = size["dropbox"]
    for name, words, what in (
        ("logins-dropbox-up", {}, "{}, Dropbox"),
        ("logins-dropbox-slow", {"rate": size["writes"]}, f"{{}}, Dropbox, {size['writes']} changes a second"),
    ):
        found.append(Up(name, what, "dropbox", words, data.names(count, folders), each, DROPBOX))
    for kind, title in (("onedrive", "OneDrive"), ("box", "Box")):
        count, each, folders = size[kind]
        found.append(Up(f"logins-{kind}-up", f"{{}}, {title}", kind, {}, data.names(count, folders), each, FEW))
        found.append(Up(f"logins-{kind}-one", f"{{}}, {title}", kind, {}, ["big.bin"], size["one"], FEW))
    return [*found, Crypt("logins-crypt", size["crypt"])]


class Service(Program):
    """A simulator of this kind; a context manager."""

    def __init__(self, binary, kind, words):
        super().__init__(binary, kind, *(f"{name}={value}" for name, value in words.items()))

    def __enter__(self):
        super().__enter__()
        self.said = json.loads(self.told)
        return self

    def remote(self):
        """Its remote and the way to it."""
        found = {f"RCLONE_CONFIG_{REMOTE}_{name.upper()}": value for name, value in self.said["options"].items()}
        if "proxy" in self.said:
            found |= {"RCLONE_HTTP_PROXY": self.said["proxy"], "RCLONE_CA_CERT": self.said["ca"]}
        return found

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Logins(Case):
    """One cloud, the remote `cloud:`. rclone with its defaults and at its best."""

    servers = ("loginsim",)
    tools = ("rclone",)
    columns = (("% throttled", "throttled_percent"),)
    runs = 1
    limit = 600

    def __init__(self, name, kind, words, best):
        super().__init__()
        self.name, self.kind, self.words, self.best = name, kind, {"latency": LATENCY} | words, best

    def prepare(self, folder, tools, stack):
        self.folder, self.binary = folder, tools.paths["loginsim"]
        self.service = stack.enter_context(contextlib.ExitStack())

    def start(self):
        """A cloud in the place of the one before."""
        self.service.close()
        self.cloud = self.service.enter_context(Service(self.binary, self.kind, self.words))
        self.endpoints = [self.cloud]

    def environment(self, command):
        return super().environment(command) | self.cloud.remote()

    def commands(self):
        yield Command("haul", "haul", self.verb(), once=True)
        # With its defaults it takes ten minutes for Dropbox's small files.
        if self.kind != "dropbox":
            yield Command("rclone", "rclone", self.verb(), once=True)
        yield Command("rclone best", "rclone", [*self.verb(), *self.best], once=True)

    def count(self, run):
        """Adds to a run's record what was asked for."""
        counted = self.cloud.ask("counts")
        total = sum(counted["requests"].values())
        run |= {"requests": counted["requests"], "total_requests": total, "throttled": counted["throttled"]}
        run["throttled_percent"] = 100 * counted["throttled"] / max(1, total)


class Up(Logins):
    """Into an empty cloud; names and sizes are compared, and each service has told what it has."""

    columns = (*Logins.columns, ("versions a file", "versions"))

    def __init__(self, name, what, kind, words, names, each, best):
        super().__init__(name, kind, words, best)
        self.plan = [(key, number, each) for number, key in enumerate(names)]
        self.bytes = len(self.plan) * each
        count = f"{len(self.plan):,} × {each / 1e6:g} MB"
        self.what = f"{what.format(count)}, up, {LATENCY} ms a request"
        # The simulator keeps it in memory.
        self.memory = 3 * self.bytes

    def need(self):
        return 2 * self.bytes

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.local = Path(folder, "files")
        data.write([data.describe(*file) for file in self.plan], self.local)

    def verb(self):
        return ["copy", f"{self.local}/", f"{REMOTE.lower()}:up"]

    def fresh(self, _command):
        self.start()

    def check(self, _command, run, _whole):
        self.count(run)
        files = self.cloud.ask("files")
        run["versions"] = sum(versions for _, versions in files.values()) / max(1, len(files))
        found = {path: size for path, (size, _) in files.items()}
        expected = {f"up/{key}": size for key, _, size in self.plan}
        return None if found == expected else f"{len(found)} files instead of {len(expected)}, or other sizes"


class Down(Up):
    """From a cloud, which haul filled, into a fresh folder."""

    columns = Logins.columns

    def __init__(self, *args):
        super().__init__(*args)
        self.what = self.what.replace(", up,", ", down,")

    def prepare(self, folder, tools, stack):
        Logins.prepare(self, folder, tools, stack)
        self.files = [data.describe(*file) for file in self.plan]
        local, self.out = Path(folder, "files"), Path(folder, "out")
        data.write(self.files, local)
        self.start()
        words = [tools.paths["haul"], "copy", f"{local}/", f"{REMOTE.lower()}:up"]
        subprocess.run(words, env=self.environment(None), check=True, capture_output=True)
        remove(local)

    def verb(self):
        return ["copy", f"{REMOTE.lower()}:up", f"{self.out}/"]

    def fresh(self, _command):
        self.cloud.ask("counts")

    def check(self, _command, run, whole):
        self.count(run)
        return data.check_folder(self.files, self.out, whole)

    def discard(self, _command):
        remove(self.out)


class List(Logins):
    """The names of all files and folders of a tree."""

    def __init__(self, name, folders):
        super().__init__(name, "drive", {"folders": folders}, DRIVE)
        self.folders = folders
        self.what = f"names of {folders:,} folders and {folders * 10:,} files, Drive, {LATENCY} ms a request"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.out = Path(folder, "out")
        self.start()

    def verb(self):
        return ["lsf", "-R", f"{REMOTE.lower()}:"]

    def fresh(self, _command):
        self.cloud.ask("counts")

    def output(self, _command):
        return self.out, None

    def check(self, _command, run, _whole):
        self.count(run)
        found = {line.rstrip("\n") for line in open(self.out, encoding="utf-8")}
        expected = {f"{number // 100:04}/" for number in range(self.folders)}
        for number in range(self.folders):
            inner = f"{number // 100:04}/{number:06}/"
            expected |= {inner, *(f"{inner}{file}" for file in range(10))}
        return None if found == expected else f"{len(found)} names instead of {len(expected)}"


class Crypt(Case):
    """One large file to MinIO, plain and encrypted."""

    servers = ("minio",)
    tools = ("rclone",)
    bucket = "crypt"
    key = "big.bin"

    def __init__(self, name, size):
        super().__init__()
        self.name, self.bytes = name, size
        self.what = f"one file of {size / 1e6:,g} MB to a fresh bucket of MinIO, plain and encrypted"

    def need(self):
        return int(2.1 * self.bytes)

    def prepare(self, folder, tools, stack):
        self.server = stack.enter_context(Minio(tools.paths["minio"], folder / "server"))
        self.endpoints = [self.server]
        self.folder, self.local = folder, Path(folder, "files")
        data.write([data.describe(self.key, 0, self.bytes)], self.local)

    def environment(self, command):
        prefix = "RCLONE_CONFIG_SECRET_"
        options = {"TYPE": "crypt", "REMOTE": f"plain:{self.bucket}", "PASSWORD": PASSWORD, "FILENAME_ENCRYPTION": "off"}
        return super().environment(command) | self.server.remote("plain") | {prefix + name: value for name, value in options.items()}

    def commands(self):
        for tool in ("haul", "rclone"):
            for label, there in (("", f"plain:{self.bucket}"), (" crypt", "secret:")):
                yield Command(f"{tool}{label}", tool, ["copy", f"{self.local}/", there])
        best = ["--s3-upload-concurrency", "16", "--s3-chunk-size", "16M"]
        yield Command("rclone crypt best", "rclone", ["copy", *best, f"{self.local}/", "secret:"])

    def fresh(self, _command):
        self.server.create(self.bucket)

    def check(self, command, _run, _whole):
        # A header, and 16 bytes for each 64 KiB that are begun.
        encrypted = self.bytes + 32 + 16 * -(-self.bytes // 65536)
        expected = {f"{self.key}.bin": encrypted} if "crypt" in command.label else {self.key: self.bytes}
        found = self.server.list(self.bucket)
        return None if found == expected else f"{found} instead of {expected}"

    def discard(self, _command):
        self.server.drop(self.bucket)

