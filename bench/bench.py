#!/usr/bin/env python3
"""Compares haul with its peers in one run: same data, same server, runs interleaved, every result checked.

Prints a report in Markdown, and writes it below bench/results with its plots and each run as JSON. See docs/benchmarks.md.
"""

import argparse
import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cases
import cloud
import peers
import report
from lock import Quiet
from measure import measure

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
# A case that can't continue, such as one whose server died, doesn't end the others.
BROKEN = (OSError, RuntimeError, subprocess.CalledProcessError, http.client.HTTPException)


def main():
    # As with Ctrl-C: servers end, the data is removed, and the results so far are shown.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = arguments()
    chosen = choose(args.only, cases.all_cases(args.quick))
    if args.list:
        print("\n".join(f"{case.name:24} {case.what}" for case in chosen))
        return
    runs = args.runs or (1 if args.quick else RUNS)
    heavy = not args.quick or bool(args.only)
    tools = peers.find(ROOT, needed(chosen, args.tools), args.haul, args.cloudsim, heavy, args.profile)
    work = Path(tempfile.mkdtemp(prefix="haul-bench-", dir=args.dir))
    interrupted = False
    try:
        refuse_if_full(work, chosen)
        announce(chosen, runs)
        results = report.Results(ROOT / "bench" / "results", work, tools, args.quick)
        try:
            for case in chosen:
                try:
                    run_case(case, work, tools, results, runs, args)
                except BROKEN as error:
                    print(f"bench: {case.name}: {error}", file=sys.stderr)
                    results.broke(case.name, str(error))
        except KeyboardInterrupt:
            interrupted = True
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if interrupted:
        print("bench: interrupted: fewer runs than asked for", file=sys.stderr)
    print(results.write())
    print(f"\nEach run, the report and its plots: {results.folder}")
    sys.exit(130 if interrupted else 1 if results.failed_itself() else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="reduced sizes, one run, no warm-up: a smoke test, not a benchmark")
    parser.add_argument("--only", default="", metavar="CASE[,CASE]", help="these cases only, or all that begin so (hpc, flat-1M)")
    parser.add_argument("--tools", default="", metavar="TOOL[,TOOL]", help="haul and these peers only")
    parser.add_argument("--list", action="store_true", help="say what the cases are, run nothing")
    parser.add_argument("--runs", type=int, help=f"measured runs of each command (default {RUNS}, with --quick 1)")
    parser.add_argument("--profile", default="release", help="cargo's profile to build haul with (default release)")
    parser.add_argument("--haul", metavar="PATH", help="this binary instead of building one")
    parser.add_argument("--cloudsim", metavar="PATH", help="likewise")
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where data goes, such as /dev/shm (default: target/)")
    parser.add_argument("--lock", metavar="FILE", help="lock this file while measuring, so that jobs that share it wait")
    args = parser.parse_args()
    if args.runs is not None and args.runs < 1:
        parser.error("--runs has to be at least 1")
    os.makedirs(args.dir, exist_ok=True)
    return args


def choose(only, every):
    """The cases named, or whose names begin so, in their own order; a word that fits none ends the program."""
    words = [word for word in only.split(",") if word]
    unknown = [word for word in words if not any(fits(word, case.name) for case in every)]
    if unknown:
        sys.exit(f"bench: no such case: {', '.join(unknown)} (there are {', '.join(case.name for case in every)})")
    return [case for case in every if not words or any(fits(word, case.name) for word in words)]


def fits(word, name):
    return name == word or name.startswith(f"{word}-")


def needed(chosen, only):
    """The programs that the cases use: haul first, then peers and servers, each once."""
    wanted = [word for word in only.split(",") if word]
    found = ["haul"]
    for case in chosen:
        found += case.servers
        found += [name for name in case.tools if not wanted or name in wanted]
    return list(dict.fromkeys(found))


def refuse_if_full(work, chosen):
    """Cases run one after the other and clean up, so the greediest one decides."""
    need = max(case.need() for case in chosen)
    free = shutil.disk_usage(work).free
    print(f"bench: data in {work}: needs up to {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free", file=sys.stderr)
    if need > free * 0.95:
        sys.exit(f"bench: not enough space in {work.parent}: choose another --dir, or fewer cases with --only")


def announce(chosen, runs):
    """Says beforehand which cases will take long by design."""
    for case in chosen:
        # With the warm-up.
        seconds = (case.seconds or 0) * (min(runs, case.runs or runs) + 1) + case.seconds_once
        if seconds > 600:
            print(f"bench: {case.name} will take some {seconds / 3600:.1f} hours by design, and more with slow peers", file=sys.stderr)


def run_case(case, work, tools, results, runs, args):
    """One warm-up round, then `runs` measured rounds; in each round every command runs once, in rotating order.

    A reduced run has no warm-up; its one round is checked whole instead.
    """
    lacking = [name for name in case.servers if name not in tools.paths]
    if lacking or memory_available() < case.memory:
        why = tools.missing[lacking[0]] if lacking else f"needs {case.memory / 1e9:.1f} GB of free memory"
        results.skip(case.name, "all", why)
        return
    folder = work / case.name
    folder.mkdir()
    runs = min(runs, case.runs or runs)
    try:
        with contextlib.ExitStack() as stack:
            case.prepare(folder, tools, stack)
            commands = list(runnable(case, tools, results, args.tools))
            if not commands:
                return
            results.begin(case, commands)
            quiet = Quiet(args.lock)
            for number in range(1 if args.quick else 0, runs + 1):
                turn = number % len(commands)
                if number:
                    quiet.begin()
                start = time.monotonic()
                for command in commands[turn:] + commands[:turn]:
                    if (number == 1 or not command.once) and not run_once(case, command, tools, number, args.quick, results):
                        commands.remove(command)
                quiet.end(time.monotonic() - start)
            quiet.release()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def runnable(case, tools, results, only):
    """The case's commands whose tool is there; the others are reported with the reason."""
    for command in case.commands():
        if only and command.tool != "haul" and command.tool not in only.split(","):
            continue
        if command.words is None or command.tool not in tools.paths:
            results.skip(case.name, command.label, command.why or tools.missing[command.tool])
        else:
            yield command


def run_once(case, command, tools, number, quick, results):
    """Runs a command into a fresh destination and checks what it left. The warm-up is checked whole, not recorded.

    False if the command took so long that it shall not be tried again.
    """
    case.fresh(command)
    # So that writes of earlier runs aren't flushed during this one.
    subprocess.run(["sync", "-f", results.work], check=True)
    clouds = [endpoint for endpoint in case.endpoints if isinstance(endpoint, cloud.Cloud)]
    for one in clouds:
        one.reset()
    server_before = sum(endpoint.cpu_seconds() for endpoint in case.endpoints)
    load = os.getloadavg()[0]
    out, log = case.output(command)
    argv = [tools.paths[command.tool], *command.words]
    stop = case.until(command)
    run = measure(argv, case.environment(command), case.limit, out, log, stop, command.ends, command.folder)
    run["server_cpu_s"] = sum(endpoint.cpu_seconds() for endpoint in case.endpoints) - server_before if case.endpoints else None
    run["load_before"] = load
    if clouds:
        run |= cloud.add_up([one.report() for one in clouds])
    try:
        problem = run.pop("problem") or case.check(command, run, quick or number == 0)
    except ValueError as error:
        problem = f"what it printed can't be read: {error}"
    case.discard(command)
    word = "warm-up" if number == 0 else f"run {number}"
    print(
        f"bench: {case.name}: {command.label}: {word}: {run['wall_s']:.2f} s, "
        f"{run['user_s'] + run['sys_s']:.2f} s CPU{': FAILED: ' + problem if problem else ''}",
        file=sys.stderr,
    )
    results.add(case, command, number, run, problem)
    return not run["over_limit"]


def memory_available():
    """Bytes that programs can have without swapping."""
    found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    return int(found.group(1)) * 1024 if found else sys.maxsize


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except BROKEN as error:
        sys.exit(f"bench: {error}")
