"""One job by many workers (`haul fleet`): a million objects from bucket to bucket on 1, 2, 4 and 8 of them, and ten million on 8; one large
file, split, on 1, 2 and 4. Each worker may send so many requests or bytes a second, so that the processors of one machine are enough for
all of them."""

import datetime
import json
import re
import subprocess

import data
from cases.common import CloudCase, Command, TwoClouds
from cloud import Cloud, difference

FULL, QUICK = 1_000_000, 2_000
MANY, MANY_QUICK = 10_000_000, 4_000
# Requests a second of each worker. Two cores can serve and send eight workers' requests, also with a development build.
RATE_FULL, RATE_QUICK = 400, 100
WORKERS_KILLED = (4,)
WORKERS_FULL, WORKERS_QUICK = (1, 2, 4, 8), (1, 2)
WORKERS_MANY, WORKERS_MANY_QUICK = (8,), (2,)
FROM, TO, JOBS, SIZE = "from", "to", "jobs", 1_000
SECONDS_FULL, SECONDS_MANY = 6_500, 3_200
# The worker's log has a line for each copied object.
LOG_LINE = 150
KILL_SECONDS, KILL_SECONDS_QUICK = 10, 2
# Most kills: a worker that is killed more often than leases end makes no progress.
KILLS, KILLS_QUICK = 200, 2
# One file: bytes, from which size it is split (a range is an eighth of that), MiB a second of each worker, each way. Eight ranges at least
# for each of the workers.
SPLIT_FULL, SPLIT_QUICK = (4_000_000_000, "1G", 50), (100_000_000, "32M", 10)
WORKERS_SPLIT = (1, 2, 4)
# The workers of one run, started and waited for; each says how many requests to the job's directory it made, and when it ended.
RUN = """
"$0" fleet create {ends} --at jobs:{jobs}/run --shards {shards} {more} > /dev/null || exit
i=0
while [ $i -lt {workers} ]; do
  ( "$0" fleet work jobs:{jobs}/run {rate} --lease {lease} -v --log-format date,time,microseconds 2> worker-$i.log > /dev/null
    echo $? > worker-$i.code ) &
  i=$((i + 1))
done
wait
"""
# The same, while one after the other is killed every so many seconds, and started again as a scheduler does.
RUN_KILLED = """
"$0" fleet create {ends} --at jobs:{jobs}/run --shards {shards} {more} > /dev/null || exit
i=0 all=
while [ $i -lt {workers} ]; do
  ( while
      "$0" fleet work jobs:{jobs}/run {rate} --lease {lease} -v --log-format date,time,microseconds 2>> worker-$i.log > /dev/null &
      echo $! > worker-$i.pid
      wait $!
      code=$?
      [ $code = 137 ]
    do :; done
    echo $code > worker-$i.code ) &
  all="$all $!"
  i=$((i + 1))
done
( n=0; while [ $n -lt {kills} ] && sleep {every}; do kill -9 $(cat worker-$((n % {workers})).pid); n=$((n + 1)); echo $n > worker-killed; done ) 2> /dev/null &
killer=$!
wait $all
kill $killer 2> /dev/null || :
"""


def cases(quick):
    return [Fleet(quick), Many(quick), Killed(quick), Split(quick)]


def forget_workers(folder):
    """Removes what the workers of an earlier run left."""
    for log in folder.glob("worker-*"):
        log.unlink()


def ended_wrongly(folder, workers):
    """What is wrong with how the workers ended, if anything is."""
    codes = [int(code.read_text()) for code in folder.glob("worker-*.code")]
    return None if codes == [0] * workers else f"workers ended with {codes}"


class Fleet(CloudCase):
    """A copy of all objects of a bucket to another of the same provider."""

    name = "cluster-fleet"
    tools = ("sh",)
    limit = 7_200
    runs = 1
    flags = ("--preset", "aws-like", "--keep", "sizes")
    columns = (
        ("of the rate %", "rate_percent"),
        ("coordination %", "coordination_percent"),
        ("done twice %", "twice_percent"),
        ("tail %", "tail_percent"),
    )
    script = RUN

    def __init__(self, quick):
        super().__init__()
        self.keys, self.rate = (QUICK, RATE_QUICK) if quick else (FULL, RATE_FULL)
        self.workers = WORKERS_QUICK if quick else WORKERS_FULL
        self.seconds = None if quick else SECONDS_FULL
        self.every, self.kills = (KILL_SECONDS_QUICK, KILLS_QUICK) if quick else (KILL_SECONDS, KILLS)
        self.what = self.words()

    def words(self):
        return f"copy of {self.keys:,} objects by {', '.join(map(str, self.workers))} workers of {self.rate} requests a second each"

    def need(self):
        return 2 * self.keys * LOG_LINE

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.haul = tools.paths["haul"]
        self.cloud.fill(FROM, self.keys, "flat", SIZE)
        # The job's own objects are read again, so they lie where contents are kept.
        self.jobs = stack.enter_context(Cloud(self.program, "--preset", "aws-like"))
        self.endpoints = [self.cloud, self.jobs]

    def environment(self, command):
        return super().environment(command) | self.jobs.remote("jobs")

    def commands(self):
        for workers in self.workers:
            lease = "60s" if self.keys >= FULL else "6s"
            script = self.script.format(
                ends=f"bench:{FROM} bench:{TO}", jobs=JOBS, shards=64, more="", workers=workers, rate=f"--tpslimit {self.rate}", lease=lease,
                every=self.every, kills=self.kills,
            )
            yield Command(f"haul fleet {workers}", "sh", ["-c", script, self.haul], series="haul fleet", at=workers, folder=str(self.folder))

    def fresh(self, _command):
        self.cloud.create(TO)
        self.jobs.create(JOBS)
        forget_workers(self.folder)

    def check(self, command, run, _whole):
        if wrong := ended_wrongly(self.folder, command.at):
            return wrong
        copied = self.cloud.count(TO)
        if copied != self.keys:
            return f"{copied} of {self.keys} objects were copied"
        report = subprocess.run(
            [self.haul, "fleet", "report", f"jobs:{JOBS}/run", "--json"],
            env=self.environment(command), capture_output=True, text=True, check=False,
        )
        outcome = json.loads(report.stdout)["outcome"]
        if outcome["error_count"] or outcome["transfers"] + outcome["unchanged"] != self.keys:
            return f"the report says {outcome}"
        workers = [Log(log) for log in self.folder.glob("worker-*.log")]
        run["rate_percent"] = 100 * self.keys / (command.at * self.rate * run["wall_s"])
        run["coordination_percent"] = 100 * sum(log.spent for log in workers) / max(run["total_requests"], 1)
        copies = sum(number for kind, number in run["requests"].items() if "copy" in kind.lower())
        run["twice_percent"] = 100 * (copies / self.keys - 1)
        run["tail_percent"] = tail(workers)
        return None


class Many(Fleet):
    """Ten million objects, once."""

    name = "cluster-fleet-10M"

    def __init__(self, quick):
        super().__init__(quick)
        self.keys, self.workers = (MANY_QUICK, WORKERS_MANY_QUICK) if quick else (MANY, WORKERS_MANY)
        self.seconds, self.seconds_once = None, 0 if quick else SECONDS_MANY
        self.what = self.words()

    def commands(self):
        for command in super().commands():
            command.once = True
            yield command


class Killed(Fleet):
    """The same by 4 workers, of which one is killed again and again."""

    name = "cluster-fleet-killed"
    script = RUN_KILLED
    columns = (*Fleet.columns, ("killed", "killed"))

    def __init__(self, quick):
        super().__init__(quick)
        self.workers = WORKERS_KILLED
        self.seconds = None
        self.what = f"copy of {self.keys:,} objects by {self.workers[0]} workers of {self.rate} requests a second, one killed every {self.every} s"

    def check(self, command, run, whole):
        killed = self.folder / "worker-killed"
        run["killed"] = int(killed.read_text(encoding="ascii")) if killed.exists() else 0
        return super().check(command, run, whole)


class Split(TwoClouds):
    """One large file from one provider to another, in ranges that all workers take."""

    name = "cluster-fleet-split"
    tools = ("sh",)
    runs = 3
    src_flags = dst_flags = ("--preset", "aws-like", "--latency", "50ms", "--connection-rate", "25M", "--keep", "sizes")
    columns = (("of the rate %", "rate_percent"), ("coordination %", "coordination_percent"))

    def __init__(self, quick):
        super().__init__()
        self.size, self.split_from, self.rate = SPLIT_QUICK if quick else SPLIT_FULL
        self.what = (
            f"one file of {self.size / 1e9:g} GB from one endpoint to another by {', '.join(map(str, WORKERS_SPLIT))} workers of {self.rate} MiB/s each, "
            f"50 ms and 25 MB/s a connection"
        )

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.haul = tools.paths["haul"]
        # Without an MD5, which a single worker would have to verify.
        self.src.create(FROM)
        self.src.make(FROM, "large.bin", self.size, 1, data.FIRST_TIME_NS // 10**9, md5=False)
        self.expected = self.src.stored(FROM)
        self.jobs = stack.enter_context(Cloud(tools.paths["cloudsim"], "--preset", "aws-like"))
        self.endpoints = [self.src, self.dst, self.jobs]

    def environment(self, command):
        return super().environment(command) | self.jobs.remote("jobs")

    def commands(self):
        for workers in WORKERS_SPLIT:
            script = RUN.format(
                ends=f"src:{FROM} dst:{TO}", jobs=JOBS, shards=1, more=f"--split-files-from {self.split_from}", workers=workers,
                rate=f"--bwlimit {self.rate}M", lease="60s",
            )
            yield Command(f"haul fleet {workers}", "sh", ["-c", script, self.haul], series="haul fleet", at=workers, folder=str(self.folder))

    def fresh(self, _command):
        self.dst.create(TO)
        self.jobs.create(JOBS)
        forget_workers(self.folder)

    def check(self, command, run, _whole):
        if wrong := ended_wrongly(self.folder, command.at):
            return wrong
        run["rate_percent"] = 100 * self.size / (command.at * self.rate * 2**20 * run["wall_s"])
        logs = [Log(log) for log in self.folder.glob("worker-*.log")]
        run["coordination_percent"] = 100 * sum(log.spent for log in logs) / max(run["total_requests"], 1)
        return difference(self.expected, self.dst.stored(TO))


class Log:
    """What the log of a worker says: when it had copied its first object and its last, None where it copied none, and how many requests
    it made to the job's directory. Millions of lines are read one by one."""

    def __init__(self, path):
        first = last = None
        self.spent = 0
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if line.endswith(": Copied (server-side copy)\n"):
                    first, last = first or line, line
                elif found := FOLDER.search(line):
                    self.spent += int(found[1])
        self.copied = (stamp(first), stamp(last)) if first else None


def tail(logs):
    """How much of the run's time it took from when the first worker had copied its last object until the last had, in percent."""
    copied = [log.copied for log in logs if log.copied]
    lasts = [last for _, last in copied]
    took = max(lasts, default=0) - min((first for first, _ in copied), default=0)
    return 100 * (max(lasts) - min(lasts)) / took if took else 0.0


def stamp(line):
    """Seconds of a line of the log."""
    return datetime.datetime.strptime(line[:26], "%Y/%m/%d %H:%M:%S.%f").timestamp()


FOLDER = re.compile(r"(\d+) requests to the job's directory")
