"""Keeps the measurements: one JSON file for each run, and at the end a report in Markdown with its plots."""

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path

import curves
import stats

# A column of the table: heading, the number in a run's record, digits after the point.
SERVER_CPU = ("server CPU s", "server_cpu_s", 1)
REQUESTS = ("requests", "total_requests", 0)
THROTTLED = ("throttled", "throttled", 0)
COST = ("cost $", "cost_usd", 4)
# Beginnings of the labels of haul's own programs.
OURS = ("haul", "haul-mpi")


class Results:
    """All runs of one invocation. The warm-up counts only if it failed."""

    def __init__(self, folder, work, tools, quick):
        stamp = datetime.datetime.now(datetime.timezone.utc)
        self.folder = Path(folder, stamp.strftime("%Y%m%dT%H%M%SZ"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tools, self.quick, self.date = tools, quick, stamp
        self.work, self.machine = str(work), machine(work)
        self.cases, self.runs, self.skipped, self.failed, self.broken, self.commands = {}, {}, [], [], [], {}

    def begin(self, case, commands):
        """Notes what will be run, in the order of the table."""
        self.cases[case.name] = case
        self.runs[case.name] = {command.label: {} for command in commands}
        self.commands |= {(case.name, command.label): command for command in commands}

    def add(self, case, command, number, run, problem):
        """Notes a run; writes it to disk unless it was the warm-up."""
        if problem:
            self.failed.append((case.name, command, problem))
        if number == 0:
            return
        runs = self.runs[case.name][command.label]
        runs[number] = run if not problem else None
        record = {
            "case": case.name,
            "what": case.what,
            "command": command.label,
            "argv": [command.tool, *command.words],
            "version": self.tools.versions.get(command.tool),
            "quick": self.quick,
            "run": number,
            "problem": problem,
            "machine": self.machine,
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }
        name = re.sub(r"[^a-zA-Z0-9]+", "-", f"{case.name} {command.label} {number}")
        text = json.dumps(record | run, indent=1)
        (self.folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    def skip(self, case, label, why):
        self.skipped.append((case, label, why))

    def broke(self, case, why):
        """A case came to an end by a fault of the benchmark or of a server."""
        self.broken.append((case, why))

    def failed_itself(self):
        """Whether haul failed, or the benchmark. That a peer fails is a result, and reported."""
        return bool(self.broken) or any(command.label.split()[0] in OURS for _, command, _ in self.failed)

    def write(self):
        """Writes report.md and the plots beside the runs; gives the report's text."""
        for case in self.runs:
            picture = curves.page(case, *self.swept(case))
            if picture:
                (self.folder / f"{case}.svg").write_text(picture, encoding="utf-8")
        text = self.markdown()
        (self.folder / "report.md").write_text(text + "\n", encoding="utf-8")
        return text

    def markdown(self):
        """The tables, with what they were measured on, and what was left out or went wrong."""
        lines = [f"Measured {self.date:%Y-%m-%d}{' at reduced size (--quick)' if self.quick else ''}: {describe(self.machine)}.", ""]
        lines += [f"- {name}: {version}" for name, version in self.tools.versions.items()]
        for name, commands in self.runs.items():
            lines += ["", f"### {name}", "", f"{self.cases[name].what[:1].upper()}{self.cases[name].what[1:]}.", ""]
            lines += self.table(name, commands)
            measured, levels = self.swept(name)
            speed_ups = curves.table(measured)
            lines += ["", *speed_ups] if speed_ups else []
            lines += ["", f"![{name}]({name}.svg)"] if curves.page(name, measured, levels) else []
        if self.skipped:
            lines += ["", "Skipped:", *(f"- {case}: {label}: {why}" for case, label, why in self.skipped)]
        if self.failed:
            lines += ["", "FAILED:", *(f"- {case}: {command.label}: {problem}" for case, command, problem in self.failed)]
        if self.broken:
            lines += ["", "BROKEN OFF:", *(f"- {case}: {why}" for case, why in self.broken)]
        return "\n".join(lines)

    def table(self, case, commands):
        every = [run for runs in commands.values() for run in runs.values() if run]
        extra = [column for column in (SERVER_CPU, REQUESTS, THROTTLED, COST) if any(run.get(column[1]) for run in every)]
        extra += [(heading, name, 2) for heading, name in self.cases[case].columns]
        equals = any(self.commands[case, label].equal in commands for label in commands)
        kinds = REQUESTS in extra
        heads = ["command", "wall s", "× haul", "CPU s (user+sys)", "× haul", "peak MB", *(column[0] for column in extra)]
        heads += ["of which"] if kinds else []
        heads += ["at equal settings: wall, CPU"] if equals else []
        right = len(heads) - 1 - kinds - equals
        lines = [row(heads), "|" + "|".join(["---"] + ["--:"] * right + ["---"] * kinds + ["--:"] * equals) + "|"]
        for label, runs in commands.items():
            good = [run for run in runs.values() if run]
            if not good:
                lines.append(row([label, self.why(case, label), *[""] * (len(heads) - 2)]))
                continue
            base = commands.get("haul", {})
            cells = [label, spread(good, wall), ratio(runs, base, wall), spread(good, cpu), ratio(runs, base, cpu)]
            cells.append(f"{stats.median([run['peak_rss_bytes'] for run in good]) / 1e6:.0f}")
            for _, name, digits in extra:
                value = stats.median([run[name] for run in good if run.get(name) is not None])
                cells.append("" if value is None else f"{value:,.{digits}f}")
            if kinds:
                cells.append(by_kind(good[0].get("requests", {})))
            if equals:
                same = commands.get(self.commands[case, label].equal or "", {})
                cells.append(f"{ratio(runs, same, wall)}, {ratio(runs, same, cpu)}" if same else "")
            lines.append(row(cells))
        return lines

    def why(self, case, label):
        """Text in the table for a command without a number."""
        problems = [problem for name, command, problem in self.failed if (name, command.label) == (case, label)]
        late = next((problem for problem in problems if problem.startswith("not done after")), None)
        return late or ("failed" if problems else "not run")

    def swept(self, case):
        """Medians by number of transfers for each tool that was swept, and those of tools that choose for themselves."""
        measured, levels = {}, {}
        for label, runs in self.runs.get(case, {}).items():
            good = [wall(run) for run in runs.values() if run]
            command = self.commands[case, label]
            if good and command.series:
                measured.setdefault(command.series, {})[command.at] = stats.median(good)
            elif good:
                levels[label] = stats.median(good)
        return measured, levels


def row(cells):
    return f"| {' | '.join(cells)} |"


def wall(run):
    return run["wall_s"]


def cpu(run):
    return run["user_s"] + run["sys_s"]


def spread(runs, value):
    return stats.spread([value(run) for run in runs])


def ratio(runs, base, value):
    """How many times what haul needed in the same round, as text."""
    found = stats.ratio(*({n: value(run) for n, run in side.items() if run} for side in (runs, base)))
    return "" if found is None else f"{found:.2f}"


def by_kind(requests):
    """Requests by kind, most frequent first."""
    return ", ".join(f"{number:,} {kind}" for kind, number in sorted(requests.items(), key=lambda one: (-one[1], one[0])))


def machine(work):
    """What the numbers depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*:\s*(.*)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else []
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(work)], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "filesystem": kind,
    }


def describe(machine):
    return (
        f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_bytes'] / 2**30:.0f} GiB of memory, "
        f"Linux {machine['kernel']}, data on {machine['filesystem']}, warm cache"
    )
