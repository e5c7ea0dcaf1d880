"""One job by many workers (`haul fleet`): a million objects from bucket to bucket on 1, 2, 4 and 8 of them. Each worker may send so
many requests a second, so that the processors of one machine are enough for all of them."""

import json
import re
import subprocess

from cases.common import CloudCase, Command

FULL, QUICK = 1_000_000, 2_000
# Requests a second of each worker: eight of them are what two cores serve and send, with a build for development too.
RATE_FULL, RATE_QUICK = 400, 100
WORKERS_FULL, WORKERS_QUICK = (1, 2, 4, 8), (1, 2)
FROM, TO, JOBS, SIZE = "from", "to", "jobs", 1_000
SECONDS_FULL = 6_500
# The workers of one run, started and waited for; each says how many requests to the job's folder it made, and when it ended.
RUN = """
"$0" fleet create bench:{src} bench:{dst} --at bench:{jobs}/run --shards {shards} > /dev/null || exit
i=0
while [ $i -lt {workers} ]; do
  ( "$0" fleet work bench:{jobs}/run --tpslimit {rate} --lease {lease} -v 2> worker-$i.log > /dev/null; echo $? > worker-$i.code ) &
  i=$((i + 1))
done
wait
"""


def cases(quick):
    return [Fleet(quick)]


class Fleet(CloudCase):
    """A copy of all objects of a bucket to another of the same provider."""

    name = "cluster-fleet"
    tools = ("sh",)
    limit = 7_200
    runs = 1
    flags = ("--preset", "aws-like", "--keep", "sizes")
    columns = (("coordination %", "coordination_percent"), ("done twice %", "twice_percent"))

    def __init__(self, quick):
        super().__init__()
        self.keys, self.rate = (QUICK, RATE_QUICK) if quick else (FULL, RATE_FULL)
        self.workers = WORKERS_QUICK if quick else WORKERS_FULL
        self.seconds = None if quick else SECONDS_FULL
        self.what = f"copy of {self.keys:,} objects by {', '.join(map(str, self.workers))} workers of {self.rate} requests a second each"

    def prepare(self, folder, tools, stack):
        super().prepare(folder, tools, stack)
        self.haul = tools.paths["haul"]
        self.cloud.fill(FROM, self.keys, "flat", SIZE)

    def commands(self):
        for workers in self.workers:
            lease = "60s" if self.keys >= FULL else "6s"
            script = RUN.format(src=FROM, dst=TO, jobs=JOBS, shards=64, workers=workers, rate=self.rate, lease=lease)
            yield Command(f"haul fleet {workers}", "sh", ["-c", script, self.haul], series="haul fleet", at=workers, folder=str(self.folder))

    def fresh(self, _command):
        for bucket in (TO, JOBS):
            self.cloud.create(bucket)
        for log in self.folder.glob("worker-*"):
            log.unlink()

    def check(self, command, run, _whole):
        codes = [int(code.read_text()) for code in self.folder.glob("worker-*.code")]
        if codes != [0] * command.at:
            return f"workers ended with {codes}"
        copied = sum(1 for _ in self.cloud.entries(TO))
        if copied != self.keys:
            return f"{copied} of {self.keys} objects were copied"
        report = subprocess.run(
            [self.haul, "fleet", "report", f"bench:{JOBS}/run", "--json"],
            env=self.environment(command), capture_output=True, text=True, check=False,
        )
        outcome = json.loads(report.stdout)["outcome"]
        if outcome["error_count"] or outcome["transfers"] + outcome["unchanged"] != self.keys:
            return f"the report says {outcome}"
        spent = sum(int(number) for log in self.folder.glob("worker-*.log") for number in FOLDER.findall(log.read_text()))
        run["coordination_percent"] = 100 * spent / max(run["total_requests"], 1)
        run["twice_percent"] = 100 * outcome["unchanged"] / self.keys
        return None


FOLDER = re.compile(r"(\d+) requests to the job's folder")
