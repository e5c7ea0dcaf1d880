"""A host behind ssh: many small files and one large one, on a link without latency and on longer ones.

The server is OpenSSH's own, without a port: ssh starts it as its ProxyCommand, behind haul-relay (haul-testkit) where there is latency.
All tools go through the same ssh.
"""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command, cannot, remove

FOLDERS, EACH = 100, 6_500
MANY, QUICK_MANY = 10_000, 100
LARGE, QUICK_LARGE = 1_000_000_000, 20_000_000
SECOND_NS = 1_000_000_000
SSHD = "/usr/sbin/sshd"
KEYGEN = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]


def cases(quick):
    many, large = (QUICK_MANY, QUICK_LARGE) if quick else (MANY, LARGE)
    found = []
    for way in ("up", "down"):
        found += [Ssh(f"ssh-many-{way}-{ms}", way, ms, many, EACH) for ms in (0, 50)]
        found += [Ssh(f"ssh-large-{way}-{ms}", way, ms, 1, large) for ms in (0, 100)]
    return found


class Ssh(Case):
    """From a folder to a host behind ssh, or back. `ms`: what a round trip takes."""

    servers = ("haul-relay",)
    tools = ("scp", "rsync", "rclone")
    limit = 1200
    runs = 3

    def __init__(self, name, way, ms, count, each):
        super().__init__()
        self.name, self.up, self.ms, self.count, self.each = name, way == "up", ms, count, each
        what = f"{count:,} files of {each:,} bytes in {FOLDERS} folders" if count > 1 else f"a file of {each:,} bytes"
        self.what = f"{what} {'to' if self.up else 'from'} a host behind ssh, {ms} ms a round trip"
        self.why = None

    def need(self):
        return 2 * self.count * (self.each + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.folder = folder
        top = Path(folder)
        here, there = top / "here", top / "far"
        if not os.path.exists(SSHD):
            self.why = "there is no sshd (openssh-server)"
            return
        self.config, self.haul = serve(top, tools.paths["haul-relay"], self.ms), tools.paths["haul"]
        here.mkdir()
        there.mkdir()
        self.files = data.tree(self.count, self.each, FOLDERS if self.count > 1 else 1)
        data.write(self.files, (here if self.up else there) / "src")
        self.src, self.dst = (here / "src", there / "dst") if self.up else (there / "src", here / "dst")

    def commands(self):
        if self.why:
            yield Command("haul", "haul", None, why=self.why)
            return
        ssh = f"ssh -F {self.config} far"
        for label, kind, more in (("haul", "far", f",haul_path={self.haul}"), ("haul sftp", "sftp", ",protocol=sftp")):
            there = f":{kind},ssh='{ssh}'{more}:"
            ends = ("", there) if self.up else (there, "")
            yield Command(label, "haul", ["copy", f"{ends[0]}{self.src}", f"{ends[1]}{self.dst}"])
        there = f":sftp,ssh='{ssh}':"
        ends = ("", there) if self.up else (there, "")
        best = ["--transfers", "32", "--checkers", "32", "--sftp-chunk-size", "255k", "--sftp-concurrency", "64"]
        rclone = ["copy", f"{ends[0]}{self.src}", f"{ends[1]}{self.dst}"]
        yield Command("rclone", "rclone", rclone)
        yield Command("rclone best", "rclone", [*rclone, *best])
        remote = ("", "far:") if self.up else ("far:", "")
        rsync = ["-rt", "-e", f"ssh -F {self.config}", f"{remote[0]}{self.src}/", f"{remote[1]}{self.dst}/"]
        yield Command("rsync", "rsync", rsync) if shutil.which("rsync") else cannot("rsync", "rsync is not installed")
        yield Command("scp", "scp", ["-q", "-r", "-F", self.config, f"{remote[0]}{self.src}", f"{remote[1]}{self.dst}"])

    def check(self, command, _run, whole):
        # SFTP has whole seconds. scp keeps no times here: it would take a round trip more for each.
        return data.check_folder(self.files, self.dst, whole, times=0 if command.tool == "scp" else SECOND_NS)

    def discard(self, _command):
        remove(self.dst)


def serve(top, relay, ms):
    """Keys and configs of a server and its user; the path of the user's ssh config."""
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "id"):
        subprocess.run([*KEYGEN, str(top / name)], check=True, stdin=subprocess.DEVNULL)
    (top / "sshd_config").write_text(
        f"HostKey {top}/host\nAuthorizedKeysFile {top}/id.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    public = " ".join((top / "host.pub").read_text().split()[:2])
    (top / "known_hosts").write_text(f"far {public}\n")
    through = f"{relay} --delay-ms={ms // 2} " if ms else ""
    config = top / "config"
    config.write_text(
        f"Host far\n ProxyCommand {through}{SSHD} -i -f {top}/sshd_config -E {top}/log\n IdentityFile {top}/id\n"
        f" IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {top}/known_hosts\n"
    )
    config.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return str(config)
