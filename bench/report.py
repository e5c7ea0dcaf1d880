"""Keeps what was measured: one JSON file a run, and a Markdown table at the end."""

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path


class Results:
    """All runs of one invocation. The warm-up counts only if it failed."""

    def __init__(self, folder, work, tools, quick):
        stamp = datetime.datetime.now(datetime.timezone.utc)
        self.folder = Path(folder, stamp.strftime("%Y%m%dT%H%M%SZ"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tools, self.quick, self.date = tools, quick, stamp
        self.work, self.machine = str(work), machine(work)
        self.runs, self.skipped, self.failed, self.equal = {}, [], [], {}

    def add(self, case, command, number, run, problem):
        """Notes a run; writes it to disk unless it was the warm-up."""
        if problem:
            self.failed.append((case.name, command.label, problem))
        self.equal[case.name, command.label] = command.equal
        # The warm-up comes in the order of the case's lines, which the table keeps.
        runs = self.runs.setdefault(case.name, {}).setdefault(command.label, {})
        if number == 0:
            return
        runs[number] = run if not problem else None
        record = {
            "case": case.name,
            "command": command.label,
            "argv": [os.path.basename(command.argv[0]), *command.argv[1:]],
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

    def markdown(self):
        """The tables, with what they were measured on, and what was left out or went wrong."""
        lines = [f"Measured {self.date:%Y-%m-%d}{' at reduced size (--quick)' if self.quick else ''}: {describe(self.machine)}.", ""]
        lines += [f"- {name}: {version}" for name, version in self.tools.versions.items()]
        for case, commands in self.runs.items():
            lines += ["", f"### {case}", "", *self.table(case, commands)]
        if self.skipped:
            lines += ["", "Skipped:", *(f"- {case}: {label}: {why}" for case, label, why in self.skipped)]
        if self.failed:
            lines += ["", "FAILED:", *(f"- {case}: {label}: {problem}" for case, label, problem in self.failed)]
        return "\n".join(lines)

    def table(self, case, commands):
        lines = [
            "| command | wall s | × haul | CPU s (user+sys) | × haul | server CPU s | peak MB | at equal settings: wall, CPU |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
        ]
        base = commands.get("haul", {})
        for label, runs in commands.items():
            good = [run for run in runs.values() if run]
            if not good:
                lines.append(f"| {label} | failed | | | | | | |")
                continue
            server = [run["server_cpu_s"] for run in good if run["server_cpu_s"] is not None]
            same = commands.get(self.equal[case, label] or "", {})
            equal = f"{ratio(runs, same, wall)}, {ratio(runs, same, cpu)}" if same else ""
            lines.append(
                f"| {label} | {spread(good, wall)} | {ratio(runs, base, wall)} | {spread(good, cpu)} | {ratio(runs, base, cpu)} "
                f"| {f'{statistics.median(server):.1f}' if server else ''} "
                f"| {statistics.median(run['peak_rss_bytes'] for run in good) / 1e6:.0f} | {equal} |"
            )
        return lines


def wall(run):
    return run["wall_s"]


def cpu(run):
    return run["user_s"] + run["sys_s"]


def spread(runs, value):
    """Median, and least–most if there is more than one."""
    values = [value(run) for run in runs]
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}–{max(values):.2f})"


def ratio(runs, base, value):
    """How many times what haul needed in the same round: the median over rounds, so that slow rounds don't count more."""
    pairs = [value(runs[n]) / value(base[n]) for n in runs if runs[n] and base.get(n) and value(base[n]) > 0]
    return f"{statistics.median(pairs):.2f}" if pairs else ""


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
