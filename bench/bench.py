#!/usr/bin/env python3
"""Compares haul with its peers in one run: same data, same server, runs interleaved, every result checked.

Prints a Markdown table; writes each run as JSON below bench/results. See docs/benchmarks.md.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cases
import peers
import report
from measure import measure
from server import Minio

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
# Others that share the lock wait no longer than this, unless a single round takes longer.
HOLD_SECONDS = 170
WAIT_SECONDS = 30


def main():
    # So that the server ends, the data goes, and what was measured is shown, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = arguments()
    size = cases.QUICK if args.quick else cases.FULL
    chosen = choose(args.only, size)
    tools = peers.find(ROOT, args.haul)
    work = Path(tempfile.mkdtemp(prefix="haul-bench-", dir=args.dir))
    interrupted = False
    try:
        refuse_if_full(work, chosen)
        results = report.Results(ROOT / "bench" / "results", work, tools, args.quick)
        try:
            for case in chosen:
                run_case(case, work, tools, results, args.runs or (1 if args.quick else RUNS), args.lock)
        except KeyboardInterrupt:
            interrupted = True
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if interrupted:
        print("bench: interrupted: fewer runs than asked for", file=sys.stderr)
    print(results.markdown())
    print(f"\nEach run: {results.folder}")
    sys.exit(130 if interrupted else 1 if results.failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="reduced sizes, one measured run: a smoke test, not a benchmark")
    parser.add_argument("--only", default="", metavar="CASE[,CASE]", help="these cases only: " + ", ".join(cases.NAMES))
    parser.add_argument("--runs", type=int, help=f"measured runs of each command (default {RUNS}, with --quick 1)")
    parser.add_argument("--haul", metavar="PATH", help="this binary instead of building a release")
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where data goes, such as /dev/shm (default: target/)")
    parser.add_argument("--lock", metavar="FILE", help="lock this file while measuring, so that jobs that share it wait")
    args = parser.parse_args()
    if args.runs is not None and args.runs < 1:
        parser.error("--runs has to be at least 1")
    os.makedirs(args.dir, exist_ok=True)
    return args


def choose(only, size):
    """The cases named, in their own order; an unknown name ends the program."""
    names = [name for name in only.split(",") if name] or cases.NAMES
    unknown = [name for name in names if name not in cases.NAMES]
    if unknown:
        sys.exit(f"bench: no such case: {', '.join(unknown)} (there are {', '.join(cases.NAMES)})")
    return [case for case in cases.all_cases(size) if case.name in names]


def refuse_if_full(work, chosen):
    """Cases run one after the other and clean up, so the greediest one decides."""
    need = max(case.need() for case in chosen)
    free = shutil.disk_usage(work).free
    print(f"bench: data in {work}: needs up to {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free", file=sys.stderr)
    if need > free * 0.95:
        sys.exit(f"bench: not enough space in {work.parent}: choose another --dir, or fewer cases with --only")


def run_case(case, work, tools, results, runs, lock):
    """One warm-up round, then `runs` measured rounds; in each round every command runs once, in rotating order."""
    folder = work / case.name
    folder.mkdir()
    with Minio(tools.minio, folder / "server") if case.needs_server else contextlib.nullcontext() as server:
        if case.needs_server and server is None:
            results.skip(case.name, "all", "minio not found: `make tools` installs it")
            return
        case.prepare(folder, server)
        commands = []
        for command in case.commands(tools):
            if command.argv is None:
                results.skip(case.name, command.label, command.why)
            else:
                commands.append(command)
        quiet = Quiet(lock)
        for round_number in range(runs + 1):
            turn = round_number % len(commands)
            if round_number:
                quiet.begin()
            start = time.monotonic()
            for command in commands[turn:] + commands[:turn]:
                run_once(case, command, server, round_number, results)
            quiet.end(time.monotonic() - start)
        quiet.release()
        case.clean_up()
    shutil.rmtree(folder)


def run_once(case, command, server, round_number, results):
    """Runs a command into a fresh destination and checks what it left. The warm-up is checked whole, not recorded."""
    case.fresh(command)
    # What earlier runs wrote is not written back during this one.
    subprocess.run(["sync", "-f", results.work], check=True)
    server_before = server.cpu_seconds() if server else 0.0
    load = os.getloadavg()[0]
    run = measure(case.argv(command), case.environment(server))
    run["server_cpu_s"] = server.cpu_seconds() - server_before if server else None
    run["load_before"] = load
    problem = run.pop("problem") or case.check(command, whole=round_number == 0)
    case.discard(command)
    word = "warm-up" if round_number == 0 else f"run {round_number}"
    print(
        f"bench: {case.name}: {command.label}: {word}: {run['wall_s']:.2f} s, "
        f"{run['user_s'] + run['sys_s']:.2f} s CPU{': FAILED: ' + problem if problem else ''}",
        file=sys.stderr,
    )
    results.add(case, command, round_number, run, problem)


class Quiet:
    """An exclusive lock on a file, if one is given, held for as many rounds as fit into HOLD_SECONDS."""

    def __init__(self, path):
        self.path, self.file, self.since = path, None, 0.0

    def begin(self):
        """Takes the lock unless it is held; measures without it when it doesn't come free for WAIT_SECONDS."""
        if not self.path or self.file:
            return
        file = open(self.path, "a", encoding="utf-8")
        for _ in range(WAIT_SECONDS * 10):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.file, self.since = file, time.monotonic()
                return
            time.sleep(0.1)
        file.close()
        print(f"bench: {self.path} stays locked: measuring without it", file=sys.stderr)

    def end(self, round_seconds):
        """Gives the lock back if another round of this length would hold it for too long."""
        if self.file and time.monotonic() - self.since + round_seconds > HOLD_SECONDS:
            self.release()

    def release(self):
        if self.file:
            self.file.close()
            self.file = None


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        sys.exit(f"bench: {error}")
