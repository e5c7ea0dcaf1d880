"""Runs one command and says what it cost, from the kernel's own accounts of the child.

The command is started by a second, small Python (this file as a program): the kernel carries a process's peak memory over
fork and exec, so that a large parent would hide what a small child needs.
"""

import json
import os
import sys
import time

# Interval of checks whether a run can be stopped early, in seconds.
LOOK_SECONDS = 0.05


def measure(argv, environment, limit, out=None, log=None, until=None, ends=(0,), folder=None):
    """Wall, user and system seconds and peak memory of `argv` and the children it waited for.

    Peak memory is that of the largest process of the tree, and never less than the small Python's, some 10 MB. Standard
    output goes to the file `out` and standard error to `log`, if given. The command is killed after `limit` seconds, and as soon
    as `until()` is true. It runs in `folder`. `problem` is None if the command exited with one of `ends`, or was killed because
    of `until`; `over_limit` says that it took too long.
    """
    import subprocess

    starter = [sys.executable, "-I", "-S", __file__, str(limit), str(out or os.devnull), str(log or ""), *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(starter, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=folder) as process:
        stopped = False
        try:
            while until and not stopped and process.poll() is None:
                time.sleep(LOOK_SECONDS)
                stopped = until()
            if stopped:
                process.terminate()
            answer, errors = process.communicate()
        except BaseException:
            # The small Python process ends the command, and then itself.
            process.terminate()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"{argv[0]} can't be started: {errors.decode('utf-8', 'replace').strip().splitlines()[-1:]}")
    run = json.loads(answer)
    run["problem"] = None
    if run["over_limit"]:
        run["problem"] = f"not done after {limit} s"
    elif run["exit_code"] not in ends and not run["stopped"]:
        last = tail(log) if log else errors.decode("utf-8", "replace")
        run["problem"] = f"exit code {run['exit_code']}: {' '.join(last.strip().splitlines()[-1:])[-300:]}"
    return run


def tail(path):
    """The end of a file of text."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
        return file.read().decode("utf-8", "replace")


def start(limit, out, log, argv):
    """Spawns `argv`, waits, gives its cost. Kills it after `limit` seconds or when told to end."""
    import signal

    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [(os.POSIX_SPAWN_OPEN, 1, out, new, 0o600)]
    if log:
        files.append((os.POSIX_SPAWN_OPEN, 2, log, new, 0o600))
    ended, child = [], None

    def end(number, _):
        ended.append(number)
        if child:
            os.kill(child, signal.SIGKILL)

    # Before the start, because the command's first action may be a reason to end it.
    signal.signal(signal.SIGALRM, end)
    signal.signal(signal.SIGTERM, end)
    begin = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, os.environ, file_actions=files)
    if ended:
        os.kill(child, signal.SIGKILL)
    signal.alarm(limit)
    _, status, usage = os.wait4(child, 0)
    return {
        "wall_s": time.perf_counter() - begin,
        "user_s": usage.ru_utime,
        "sys_s": usage.ru_stime,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
        "over_limit": signal.SIGALRM in ended,
        "stopped": signal.SIGTERM in ended,
    }


if __name__ == "__main__":
    print(json.dumps(start(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])))
