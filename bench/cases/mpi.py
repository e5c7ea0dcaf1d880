"""Many ranks of haul-mpi on one machine: what the site's page on transfer tools did with dcp, where more ranks got slower, from 1 to 32.

The launcher and MPI take their time to start, which the wall time holds and which isn't haul's: the column `own s` is what haul-mpi
says that it took.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import data
from cases import disks, nas, site
from cases.common import OVERHEAD, Case, Command, remove
from cases.site import folder_words

RANKS = (1, 2, 4, 8, 16, 32)
# Files and folders, bytes of each; the tree as in `site`; what lies a millisecond away; the sparse file; what is copied while ranks are killed:
# small files, bytes, folders, large files, bytes.
FULL = {
    "small": (37_760, 6_500, 118),
    "tree": (7_247, 174, 408, 3_000_000_000),
    "far": (2_000, 20_000, 20),
    "sparse": 64_000_000_000,
    "killed": (8_000, 6_500, 118, 4, 100_000_000),
}
QUICK = {
    "small": (1_180, 6_500, 118),
    "tree": (300, 19, 41, 100_000_000),
    "far": (100, 20_000, 5),
    "sparse": 500_000_000,
    "killed": (300, 6_500, 30, 2, 70_000_000),
}
# MPI alone takes seconds to start on a busy machine.
KILL_SECONDS, KILL_SECONDS_QUICK = 10, 5
# For root, and for more ranks than processors, in the variables of Open MPI 4 and 5.
LAUNCHER = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
OWN = re.compile(r"Seconds: ([\d.]+) on")
# Starts the words behind the seconds again and again until they end well, and kills one of the ranks every so many seconds.
KILLER = """
import os, random, subprocess, sys, time
every, words = float(sys.argv[1]), sys.argv[2:]
def ranks(above):
    found, parents = [], {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as text:
                parents[int(pid)] = int(text.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    for pid in parents:
        at = pid
        while at in parents and at != above:
            at = parents[at]
        try:
            if at == above and os.readlink(f"/proc/{pid}/exe").endswith("/haul-mpi"):
                found.append(pid)
        except OSError:
            pass
    return found
def end(code):
    print("killed", killed)
    sys.exit(code)
killed, running = 0, subprocess.Popen(words)
while True:
    try:
        end(running.wait(every))
    except subprocess.TimeoutExpired:
        found = ranks(running.pid)
    if found:
        os.kill(random.choice(found), 9)
        killed += 1
        # A job of which a rank died ends, and may be whole.
        if running.wait() == 0:
            end(0)
        running = subprocess.Popen(words)
"""


def cases(quick):
    size = QUICK if quick else FULL
    count, each, folders = size["small"]
    files, below, links, total = size["tree"]
    return [
        Ranks("cluster-small", f"{count:,} files of {each:,} bytes in {folders} directories", lambda: data.tree(count, each, folders), 0, count * (each + OVERHEAD)),
        Ranks(
            "cluster-tree", f"{files:,} files of all sizes, {total / 1e9:g} GB, {links} links",
            lambda: data.mixed(files, below, total), links, total + files * OVERHEAD,
        ),
        Far(*size["far"]),
        Sparse(size["sparse"]),
        Killed(*size["killed"], KILL_SECONDS_QUICK if quick else KILL_SECONDS),
    ]


class Mpi(Case):
    """haul-mpi on so many ranks, started as at a site."""

    servers = ("haul-mpi", "mpirun")
    columns = (("own s", "own_s"),)
    why = None

    def environment(self, command):
        return super().environment(command) | LAUNCHER

    def output(self, _command):
        return self.folder / "said", None

    def start(self, tools, folder):
        self.folder, self.launcher, self.mpi = folder, tools.paths["mpirun"], tools.paths["haul-mpi"]

    def words(self, ranks, *words):
        return [self.launcher, "-n", str(ranks), self.mpi, "dcp", "-p", *words, str(self.src), str(self.dst)]

    def command(self, ranks):
        return Command(f"haul-mpi {ranks}", "mpirun", self.words(ranks)[1:], series="haul-mpi", at=ranks)

    def own(self, command, run):
        if command.tool == "mpirun":
            found = OWN.findall((self.folder / "said").read_text(encoding="utf-8"))
            run["own_s"] = float(found[-1]) if found else None


class Ranks(Mpi, site.FolderCopy):
    """Files, and links, from one folder to a fresh one on the same disk, by 1 to 32 ranks."""

    tools = ("cp",)

    def __init__(self, name, what, make, links, size):
        super().__init__(name, f"{what}, directory to directory, on {RANKS[0]} to {RANKS[-1]} ranks", make, links, size, ())

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.start(tools, folder)

    def commands(self):
        yield Command("haul", "haul", folder_words("haul", site.KEEP, self.src, self.dst))
        yield Command("cp -a", "cp", folder_words("cp", [], self.src, self.dst))
        yield from map(self.command, RANKS)

    def check(self, command, run, whole):
        self.own(command, run)
        return super().check(command, run, whole)


class OnFar(Mpi):
    """From a folder to another of one file system that lets wait a millisecond for each answer, many at once."""

    servers = ("haul-mpi", "mpirun", "farfs")

    def mount(self, folder, tools, stack):
        self.start(tools, folder)
        behind, there = Path(folder, "behind"), Path(folder, "far")
        self.server = nas.mount(tools.paths["farfs"], behind, there, stack)
        self.why = None if self.server else nas.NO_FUSE
        self.src, self.dst = there / "src", there / "dst"
        # Set-up and checks go around it, without the delay.
        self.near_src, self.near_dst = behind / "src", behind / "dst"

    def discard(self, _command):
        remove(self.near_dst)


class Far(OnFar):
    """Small files on such a file system, by ranks and by one `cp`."""

    name = "cluster-far"
    tools = ("cp",)

    def __init__(self, count, each, folders):
        super().__init__()
        self.count, self.each, self.folders = count, each, folders
        self.what = f"{count:,} files of {each:,} bytes in {folders} directories, both sides on a file system with {nas.DELAY_US / 1000:g} ms a request"

    def need(self):
        return 2 * self.count * (self.each + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.mount(folder, tools, stack)
        self.files = data.tree(self.count, self.each, self.folders)
        data.write(self.files, self.near_src)

    def commands(self):
        if self.why:
            yield Command("haul-mpi", "mpirun", None, why=self.why)
            return
        yield Command("haul", "haul", folder_words("haul", [], self.src, self.dst))
        yield Command("cp -a", "cp", folder_words("cp", [], self.src, self.dst))
        yield from map(self.command, (1, 4, 16))

    def check(self, command, run, whole):
        self.own(command, run)
        return data.check_folder(self.files, self.near_dst, whole, times=True)


class Sparse(Mpi, disks.Sparse):
    """One file of which one part in a hundred is data, by 8 ranks."""

    name = "cluster-sparse"
    tools = ("cp",)
    columns = (*Mpi.columns, *disks.Sparse.columns)

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.start(tools, folder)

    def commands(self):
        yield from (command for command in super().commands() if command.tool in ("haul", "cp"))
        yield from map(self.command, (1, 8))

    def check(self, command, run, whole):
        self.own(command, run)
        return super().check(command, run, whole)


class Killed(OnFar):
    """Files of all sizes on such a file system, while one of 8 ranks is killed again and again, which ends the job."""

    name = "cluster-killed"
    runs = 1
    ranks = 8
    columns = (*Mpi.columns, ("killed", "killed"), ("done twice %", "twice_percent"))

    def __init__(self, count, each, folders, large, bytes_of_large, every):
        super().__init__()
        self.small, self.large, self.every = (count, each, folders), (large, bytes_of_large), every
        self.what = (
            f"{count:,} files of {each:,} bytes and {large} of {bytes_of_large / 1e6:g} MB by {self.ranks} ranks, "
            f"of which one is killed every {every} s, {nas.DELAY_US / 1000:g} ms a request"
        )

    def need(self):
        return 2 * (self.small[0] * (self.small[1] + OVERHEAD) + self.large[0] * self.large[1])

    def prepare(self, folder, tools, stack):
        self.mount(folder, tools, stack)
        large = [data.describe(f"large-{number}.bin", number, self.large[1]) for number in range(self.large[0])]
        self.files = data.tree(*self.small) + large
        data.write(self.files, self.near_src)

    def commands(self):
        if self.why:
            yield Command("haul-mpi", "python3", None, why=self.why)
            return
        words = self.words(self.ranks, "--log", str(self.folder / "log"))
        yield Command("haul-mpi 8", "mpirun", words[1:], series="haul-mpi", at=self.ranks)
        yield Command("haul-mpi 8 killed", "python3", ["-c", KILLER, str(self.every), *words])

    tools = ("python3",)

    def fresh(self, _command):
        for log in self.folder.glob("log.*"):
            log.unlink()
        self.before = self.written()

    def written(self):
        """Bytes that were written to the file system so far."""
        self.server.stdin.write("\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline().removeprefix("written "))

    def check(self, command, run, whole):
        self.own(command, run)
        killed = re.findall(r"killed (\d+)", (self.folder / "said").read_text(encoding="utf-8"))
        run["killed"] = int(killed[-1]) if killed else 0
        copied = Counter()
        for log in self.folder.glob("log.*"):
            # A line of a rank that was killed may be cut.
            lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
            copied.update(line["path"] for line in lines if line["event"] == "copied")
        files = sum(copied.values()) / len(self.files) - 1
        total = sum(file.size for file in self.files)
        written = (self.written() - self.before) / total - 1
        run["twice_percent"] = 100 * max(files, written)
        left = [path.name for path in self.near_dst.rglob(".haul-*")]
        if len(left) > 8 * max(run["killed"], 1):
            return f"{len(left)} partial files are left: {left[:3]}"
        for path in self.near_dst.rglob(".haul-*"):
            path.unlink()
        run["left"] = len(left)
        return data.check_folder(self.files, self.near_dst, whole, times=True)
