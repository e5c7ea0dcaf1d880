"""Runs one command and says what it cost, from the kernel's own accounts of the child.

The command is started by a second, small Python (this file as a program): the kernel carries a process's peak memory over
fork and exec, so that a large parent would hide what a small child needs.
"""

import json
import os
import sys
import time

# No case takes a tenth of this on a machine that is fit to measure on.
LIMIT_SECONDS = 900


def measure(argv, environment):
    """Wall, user and system seconds and peak memory of `argv` and the children it waited for.

    Peak memory is that of the largest process of the tree, and never less than the small Python's, some 10 MB.
    `problem` is None if the command exited with 0.
    """
    import subprocess

    starter = [sys.executable, "-I", "-S", __file__, *argv]
    done = subprocess.run(starter, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} can't be started: {errors[-1:]}")
    run = json.loads(done.stdout)
    run["problem"] = None if run["exit_code"] == 0 else f"exit code {run['exit_code']}: {' '.join(errors[-1:])[-300:]}"
    return run


def start(argv):
    """Spawns `argv` with standard output to nowhere, waits, gives its cost. Ends it when it takes far too long."""
    import signal

    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, os.environ, file_actions=nowhere)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(LIMIT_SECONDS)
    _, status, usage = os.wait4(child, 0)
    return {
        "wall_s": time.perf_counter() - begin,
        "user_s": usage.ru_utime,
        "sys_s": usage.ru_stime,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
    }


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1:])))
