"""A NAS that is mounted: many small files to and from a file system that lets wait a millisecond for each answer.

It is a folder beside the other, shown through FUSE by farfs (haul-testkit), which needs root.
"""

import select
import subprocess
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command, remove
from cases.site import folder_words

FOLDERS, EACH = 10, 20_000
FULL, QUICK = 1_000, 100
DELAY_US = 1_000
START_SECONDS = 60
NO_FUSE = "no file system can be mounted through FUSE here"


def cases(quick):
    count = QUICK if quick else FULL
    return [Nas("nas-up", count, up=True), Nas("nas-down", count, up=False)]


class Nas(Case):
    """From a folder to the NAS, or back. Clean-up between runs goes around the NAS, without its delay."""

    servers = ("farfs",)
    tools = ("cp", "rsync", "rclone")

    def __init__(self, name, count, up):
        super().__init__()
        self.name, self.count, self.up = name, count, up
        way = "directory to NAS" if up else "NAS to directory"
        self.what = f"{count:,} files of {EACH:,} bytes in {FOLDERS} directories, {way}, {DELAY_US / 1000:g} ms a request"
        self.why = None

    def need(self):
        return 2 * self.count * (EACH + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.folder = folder
        here, behind, there = Path(folder, "here"), Path(folder, "behind"), Path(folder, "nas")
        if not mount(tools.paths["farfs"], behind, there, stack):
            self.why = NO_FUSE
            return
        here.mkdir()
        self.files = data.tree(self.count, EACH, FOLDERS)
        data.write(self.files, here / "src" if self.up else behind / "src")
        self.src, self.dst = (here / "src", there / "dst") if self.up else (there / "src", here / "dst")
        # The result's path without the delay.
        self.result = behind / "dst" if self.up else self.dst

    def commands(self):
        if self.why:
            yield Command("haul", "haul", None, why=self.why)
            return
        for label, tool, options in (("haul", "haul", []), ("cp -a", "cp", []), ("rsync -a", "rsync", []), ("rclone", "rclone", [])):
            yield Command(label, tool, folder_words(tool, options, self.src, self.dst))
        best = ["--transfers", "32", "--checkers", "32"]
        yield Command("rclone best", "rclone", folder_words("rclone", best, self.src, self.dst))

    def check(self, _command, _run, whole):
        return data.check_folder(self.files, self.result, whole, times=True)

    def discard(self, _command):
        remove(self.result)


def mount(farfs, behind, there, stack):
    """Shows the folder `behind` at `there`, a millisecond away, as long as `stack` lasts; the server, or None where FUSE can't be had."""
    argv = [farfs, str(behind), str(there), "--delay", str(DELAY_US)]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stack.callback(end, server)
    ready, _, _ = select.select([server.stdout], [], [], START_SECONDS)
    return server if ready and server.stdout.readline().startswith("farfs ") else None


def end(server):
    """Closing its input unmounts it."""
    server.stdin.close()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
