"""A host behind ssh: many small files and one large one, on a link without latency and on longer ones; files of which some has changed, and
text, on one of 20 MB/s; and trees of which nothing has changed. `pipe` is what ssh itself carries, `cat | ssh 'cat >'`: no tool that goes by
ssh's own sessions can be faster without latency. `haul tcp` is haul at both ends with its content over TCP beside ssh.

The server is OpenSSH's own. Where there is latency haul-relay (haul-testkit) stands between two addresses of loopback, so that connections
beside ssh's take the same way; where the link has a rate too, ssh starts the server behind it, as its ProxyCommand. All tools go through the
same ssh but rclone, which has an ssh of its own: with another one it logs in once for each file.
"""

import contextlib
import filecmp
import getpass
import os
import random
import shlex
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path

import data
from cases.common import OVERHEAD, Case, Command, cannot, remove
from server import free_port

FOLDERS, EACH = 118, 6_500
MANY, QUICK_MANY = 37_760, 20
LARGE, QUICK_LARGE = 1_000_000_000, 20_000_000
# An image, and a text, of which some has changed; bytes a second of the link, and milliseconds of a round trip.
IMAGE, QUICK_IMAGE = 4_000_000_000, 24_000_000
TEXT, QUICK_TEXT = 1_000_000_000, 12_000_000
RATE, TRIP = 20_000_000, 10
PAGE = 4096
SECOND_NS = 1_000_000_000
SSHD = "/usr/sbin/sshd"
KEYGEN = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]


def cases(quick):
    many, large = (QUICK_MANY, QUICK_LARGE) if quick else (MANY, LARGE)
    found = []
    for way in ("up", "down"):
        found += [Ssh(f"ssh-many-{way}-{ms}", way, ms, many, EACH) for ms in (0, 50)]
        found += [Ssh(f"ssh-large-{way}-{ms}", way, ms, 1, large) for ms in (0, 100)]
    found += [Unchanged(f"ssh-noop-{ms}", "up", ms, many, EACH) for ms in (0, 50)]
    image, text = (QUICK_IMAGE, QUICK_TEXT) if quick else (IMAGE, TEXT)
    found += [Changed("ssh-delta-image", image, in_place), Changed("ssh-delta-text", text, insertions)]
    found.append(Text("ssh-compressed", text))
    return found


class Ssh(Case):
    """From a folder to a host behind ssh, or back. `ms`: what a round trip takes."""

    servers = ("haul-relay",)
    tools = ("scp", "rsync", "rclone", "sh")
    limit = 1200
    runs = 3

    def __init__(self, name, way, ms, count, each):
        super().__init__()
        self.name, self.up, self.ms, self.count, self.each = name, way == "up", ms, count, each
        what = f"{count:,} files of {each:,} bytes in {FOLDERS} directories" if count > 1 else f"a file of {each:,} bytes"
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
        self.haul = tools.paths["haul"]
        self.config, self.server, self.port = listen(top, tools.paths["haul-relay"], self.ms, stack)
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
        as_rsync = ["rsync", "-rt", "-e", f"ssh -F {self.config}", f"--rsync-path={self.haul}"]
        remote = ("", "far:") if self.up else ("far:", "")
        yield Command("haul rsync", "haul", [*as_rsync, f"{remote[0]}{self.src}/", f"{remote[1]}{self.dst}/"])
        far = f",haul_path={self.haul}"
        ways = [("haul", "far", far), ("haul sftp", "sftp", ",protocol=sftp")]
        if self.count == 1:
            ways.append(("haul tcp", "far", f"{far},tcp={self.port}"))
        for label, kind, more in ways:
            there = f":{kind},ssh='{ssh}'{more}:"
            ends = ("", there) if self.up else (there, "")
            yield Command(label, "haul", ["copy", f"{ends[0]}{self.src}", f"{ends[1]}{self.dst}"])
        host, port = self.server
        there = f":sftp,host={host},port={port},user={getpass.getuser()},key_file={Path(self.folder) / 'id'}:"
        ends = ("", there) if self.up else (there, "")
        best = ["--transfers", "32", "--checkers", "32", "--sftp-chunk-size", "255k", "--sftp-concurrency", "64"]
        # Else it has the host's shell hash each file, which takes as long as that shell needs to start.
        best.append("--sftp-disable-hashcheck")
        rclone = ["copy", f"{ends[0]}{self.src}", f"{ends[1]}{self.dst}"]
        yield Command("rclone", "rclone", rclone)
        yield Command("rclone best", "rclone", [*rclone, *best])
        rsync = ["-rt", "-e", f"ssh -F {self.config}", f"{remote[0]}{self.src}/", f"{remote[1]}{self.dst}/"]
        yield Command("rsync", "rsync", rsync) if shutil.which("rsync") else cannot("rsync", "rsync is not installed")
        if self.count == 1:
            yield Command("pipe", "sh", ["-c", self.pipe(ssh)])
        yield Command("scp", "scp", ["-q", "-r", "-F", self.config, f"{remote[0]}{self.src}", f"{remote[1]}{self.dst}"])

    def check(self, command, _run, whole):
        # SFTP has whole seconds. scp keeps no times here: it would take a round trip more for each.
        return data.check_folder(self.files, self.dst, whole, times=0 if command.tool in ("scp", "sh") else SECOND_NS)

    def discard(self, _command):
        remove(self.dst)

    def pipe(self, ssh):
        """The only file through a session, and nothing else."""
        key = self.files[0].key
        src, dst = shlex.quote(str(self.src / key)), shlex.quote(str(self.dst / key))
        folder = f"mkdir -p {shlex.quote(str((self.dst / key).parent))}"
        if self.up:
            return f"cat {src} | {ssh} {shlex.quote(f'{folder} && cat > {dst}')}"
        return f"{folder} && {ssh} {shlex.quote(f'cat {src}')} > {dst}"


class Unchanged(Ssh):
    """The host has everything already."""

    def __init__(self, name, way, ms, count, each):
        super().__init__(name, way, ms, count, each)
        self.what += ", which has them already"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        if not self.why:
            data.write(self.files, self.dst)

    def commands(self):
        # scp knows no "already there".
        return (command for command in super().commands() if command.tool != "scp")

    def discard(self, _command):
        pass


class Rsync(Case):
    """One file to a host behind a link of 20 MB/s, by the words of rsync. `words`: what is asked for."""

    servers = ("haul-relay",)
    tools = ("rsync",)
    limit = 1200
    runs = 3
    words = ()
    columns = (("MB on the link", "link"),)

    def __init__(self, name, size):
        super().__init__()
        self.name, self.size, self.why, self.haul = name, size, None, None

    def need(self):
        return 4 * (self.size + OVERHEAD)

    def prepare(self, folder, tools, stack):
        self.folder = folder
        self.top = Path(folder)
        if not os.path.exists(SSHD):
            self.why = "there is no sshd (openssh-server)"
            return
        self.haul = tools.paths["haul"]
        self.counted = self.top / "bytes"
        self.config = serve(self.top, tools.paths["haul-relay"], TRIP, RATE, self.counted)
        (self.top / "here").mkdir()
        (self.top / "far").mkdir()
        self.src, self.dst = self.top / "here" / "file", self.top / "far" / "file"
        self.write()
        os.utime(self.src, ns=(data.FIRST_TIME_NS, data.FIRST_TIME_NS))

    def commands(self):
        if self.why:
            yield Command("haul", "haul", None, why=self.why)
            return
        words = ["-t", *self.words, "-e", f"ssh -F {self.config}"]
        ends = [str(self.src), f"far:{self.dst}"]
        yield Command("haul", "haul", ["rsync", *words, f"--rsync-path={self.haul}", *ends])
        yield Command("rsync", "rsync", [*words, *ends]) if shutil.which("rsync") else cannot("rsync", "rsync is not installed")

    def check(self, _command, run, _whole):
        run["link"] = round(int(self.counted.read_text()) / 1e6, 2)
        same = filecmp.cmp(self.src, self.dst, shallow=False)
        return None if same else "the file there is another"

    def discard(self, _command):
        self.dst.unlink(missing_ok=True)


class Changed(Rsync):
    """The host has an older version. `change` makes the new one of it, block by block."""

    words = ("--no-whole-file",)

    def __init__(self, name, size, change):
        super().__init__(name, size)
        self.change = change
        self.what = f"a file of {size:,} bytes {change.__doc__} to a host that has the old one, {RATE // 1_000_000} MB/s"

    def write(self):
        self.old = self.top / "far" / "old"
        with open(self.old, "wb") as old, open(self.src, "wb") as new:
            for number, block in enumerate(self.blocks()):
                old.write(block)
                new.write(self.change(block, random.Random(f"change/{number}")))

    def blocks(self):
        return data.blocks(self.name, self.size) if self.change is in_place else text(self.size)

    def fresh(self, _command):
        shutil.copyfile(self.old, self.dst)
        os.utime(self.dst, ns=(data.FIRST_TIME_NS - SECOND_NS, data.FIRST_TIME_NS - SECOND_NS))


class Text(Rsync):
    """Lines of a log, compressed on the way."""

    words = ("-z",)

    def __init__(self, name, size):
        super().__init__(name, size)
        self.what = f"a text of {size:,} bytes to a host, compressed, {RATE // 1_000_000} MB/s"

    def write(self):
        with open(self.src, "wb") as new:
            for block in text(self.size):
                new.write(block)


def in_place(block, chance):
    """of which 1 % has changed in place, page by page,"""
    block = bytearray(block)
    for page in chance.sample(range(0, len(block), PAGE), max(len(block) // PAGE // 100, 1)):
        block[page : page + PAGE] = chance.randbytes(len(block[page : page + PAGE]))
    return block


def insertions(block, chance):
    """with an insertion in each 4 MB"""
    at = chance.randrange(len(block))
    return block[:at] + chance.randbytes(200).hex().encode() + block[at:]


def text(size):
    """Lines of a server's log, the same in every run, in blocks of 4 MB."""
    block = 4_000_000
    for first in range(0, size, block):
        chance = random.Random(f"text/{first}")
        words = [f"/{chance.choice('abcdef')}{chance.randrange(5000)}/{chance.randrange(300)}.html" for _ in range(2000)]
        lines, length = [], 0
        while length < min(block, size - first):
            address = f"10.{chance.randrange(8)}.{chance.randrange(256)}.{chance.randrange(256)}"
            line = f"{address} - - [2020-09-13 {first // block:04}] GET {chance.choice(words)} 200 {chance.randrange(90000)}\n"
            lines.append(line)
            length += len(line)
        yield "".join(lines).encode()[: min(block, size - first)]


def serve(top, relay, ms, rate, count):
    """A server that ssh starts; the path of its user's ssh config. `count`: a file that tells the bytes on the link."""
    through = f"{relay} --delay-ms={ms // 2} --rate={rate} --count={count} "
    return configure(top, f"ProxyCommand {through}{SSHD} -i -f {top}/sshd_config -E {top}/log")


def listen(top, relay, ms, stack):
    """A server with a port, until `stack` ends; the path of its user's ssh config, its address, and a further port that leads there."""
    ssh, port = free_port(), free_port()
    near = "127.0.0.2" if ms else "127.0.0.1"
    config = configure(top, f"HostName {near}\n Port {ssh}\n HostKeyAlias far")
    words = [SSHD, "-D", "-o", f"ListenAddress=127.0.0.1:{ssh}", "-f", f"{top}/sshd_config", "-E", f"{top}/log"]
    start(words, stack)
    if ms:
        relay = start([relay, f"--delay-ms={ms // 2}", f"--between={near},127.0.0.1", str(ssh), str(port)], stack)
        relay.stdout.readline()
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ssh)):
            return config, (near, ssh), port
        time.sleep(0.1)
    raise RuntimeError("sshd did not start within a minute")


def start(words, stack):
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def configure(top, way):
    """Keys and configs of a server and its user, who gets there by `way`; the path of the user's ssh config."""
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "id"):
        subprocess.run([*KEYGEN, str(top / name)], check=True, stdin=subprocess.DEVNULL)
    (top / "sshd_config").write_text(
        f"HostKey {top}/host\nAuthorizedKeysFile {top}/id.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\nMaxStartups 200\nSubsystem sftp internal-sftp\n"
    )
    public = " ".join((top / "host.pub").read_text().split()[:2])
    (top / "known_hosts").write_text(f"far {public}\n")
    config = top / "config"
    config.write_text(
        f"Host far\n {way}\n IdentityFile {top}/id\n"
        f" IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {top}/known_hosts\n"
    )
    config.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return str(config)
