"""The cases hang together: names, labels, points of comparison, and what the command line picks."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import bench
import cases
import data
import peers
from cases import cluster, lan, mpi, site, ssh

FEW = {"files": 40, "changed": 5, "large": 3000, "small": 10}


class Cases(unittest.TestCase):
    def test_names_are_the_same_at_both_sizes_and_all_different(self):
        names = [[case.name for case in cases.all_cases(quick)] for quick in (False, True)]
        self.assertEqual(names[0], names[1])
        self.assertEqual(len(set(names[0])), len(names[0]))
        for experiment in ("hpc", "clouds", "logins", "backblaze", "dvc", "site", "lan", "disks", "flat", "mass", "cluster", "ssh"):
            self.assertTrue(any(name.startswith(f"{experiment}-") for name in names[0]), experiment)

    def test_reduced_cases_are_smaller(self):
        for full, quick in zip(cases.all_cases(False), cases.all_cases(True)):
            self.assertLessEqual(quick.need(), 1_000_000_000, quick.name)
            self.assertLessEqual(quick.need(), full.need(), quick.name)
            self.assertLessEqual(quick.seconds or 0, 120, quick.name)
            self.assertTrue(full.what and quick.what)

    def test_one_transfer_at_the_texts_provider_is_announced(self):
        slow = {case.name: case.seconds for case in cases.all_cases(False) if case.seconds}
        self.assertEqual(set(slow), {"hpc-gdrive-up-many", "hpc-gdrive-down-many", "mass-delete", "mass-noop", "cluster-fleet"})
        many = next(case for case in cases.all_cases(False) if case.name == "cluster-fleet-10M")
        self.assertEqual((many.keys, many.seconds_once), (10_000_000, 3_200))
        up = next(case for case in cases.all_cases(False) if case.name == "hpc-gdrive-up-many")
        self.assertEqual((up.seconds, up.seconds_once), (12 * 199, 2 * 1293))

    def test_ssh_is_measured_by_itself_where_one_file_goes_and_scp_not_where_nothing_does(self):
        def labels(case):
            case.config, case.haul, case.folder = "/config", "/haul", "/far"
            case.server, case.port = ("127.0.0.1", 22), 23
            case.files = data.tree(case.count, 10, 1)
            case.src, case.dst = Path("/it's/src"), Path("/far/dst")
            return {command.label: command for command in case.commands()}

        large = labels(ssh.Ssh("large", "up", 0, 1, 10))
        self.assertTrue({"haul", "haul rsync", "haul sftp", "haul tcp", "rclone", "rsync", "scp", "pipe"} <= set(large))
        (script,) = large["pipe"].words[1:]
        self.assertTrue(script.startswith("cat '/it'\"'\"'s/src/") and "ssh -F /config far" in script, script)
        many = labels(ssh.Unchanged("noop", "up", 0, 2, 10))
        self.assertFalse({"pipe", "scp", "haul tcp"} & set(many))
        self.assertIn("rsync", many)

    def test_words_pick_cases_by_name_or_beginning(self):
        every = cases.all_cases(True)
        picked = [case.name for case in bench.choose("mass,flat-1M", every)]
        self.assertEqual(picked, ["flat-1M-list", "flat-1M-size", "flat-1M-first", "mass-delete", "mass-noop"])
        self.assertEqual(len(bench.choose("", every)), len(every))
        with self.assertRaisesRegex(SystemExit, "no such case: flat-1 "):
            bench.choose("flat-1,mass", every)

    def test_only_what_is_needed_is_looked_for(self):
        chosen = bench.choose("lan,mass-noop", cases.all_cases(True))
        self.assertEqual(bench.needed(chosen, ""), ["haul", "rsync", "rclone", "cp", "cloudsim"])
        self.assertEqual(bench.needed(chosen, "cp"), ["haul", "cp", "cloudsim"])

    def test_commands_of_folder_cases_are_sound(self):
        tree = site.FolderNoop("x", "y", lambda: [], 0, 0, site.TREE)
        with tempfile.TemporaryDirectory() as place:
            for case in (lan.Lan("a", FEW), lan.LanNoop("b", FEW), tree):
                folder = Path(place, case.name)
                folder.mkdir()
                Path(folder, "src").mkdir()
                with contextlib.ExitStack() as stack:
                    case.prepare(folder, peers.Tools(), stack)
                    commands = list(case.commands())
                labels = [command.label for command in commands]
                self.assertEqual(labels[0], "haul")
                self.assertEqual(len(set(labels)), len(labels))
                self.assertTrue({command.tool for command in commands} <= {"haul", *case.tools})
                self.assertTrue({command.equal for command in commands} <= {None, *labels})

    def test_the_tail_of_a_job_is_from_when_the_first_worker_has_no_more(self):
        def log(*seconds):
            return "".join(f"2026/11/24 10:00:{second:09.6f} INFO  : a/b: Copied (server-side copy)\n" for second in seconds)

        def logs(*texts):
            with tempfile.TemporaryDirectory() as place:
                paths = [Path(place, str(number)) for number in range(len(texts))]
                for path, text in zip(paths, texts):
                    path.write_text(text, encoding="utf-8")
                return [cluster.Log(path) for path in paths]

        end = "2026/11/24 10:00:30.000000 INFO  : 7 requests to the job's directory\n"
        read = logs(log(0, 4, 8), end + log(1, 10) + end, "")
        self.assertEqual([one.spent for one in read], [0, 14, 0])
        self.assertEqual(cluster.tail(read), 20)
        self.assertEqual(cluster.tail(logs("")), 0)

    def test_ranks_are_killed_until_a_run_ends_well(self):
        with tempfile.TemporaryDirectory() as place:
            rank = Path(place, "haul-mpi")
            shutil.copy2(shutil.which("sleep"), rank)
            # The first run waits to be killed.
            script = f"mkdir {place}/begun 2>/dev/null || exit 0; {rank} 600; exit 1"
            argv = [sys.executable, "-c", mpi.KILLER, "0.05", "sh", "-c", script]
            ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((ended.returncode, ended.stdout), (0, "killed 1\n"), ended.stderr)

    def test_commands_of_ranks_are_sound(self):
        tools = peers.Tools({"mpirun": "/usr/bin/mpirun", "haul-mpi": "/x/haul-mpi"})
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            case = next(case for case in cases.all_cases(True) if case.name == "cluster-small")
            case.prepare(Path(place), tools, stack)
            commands = list(case.commands())
            self.assertEqual([command.at for command in commands if command.at], list(mpi.RANKS))
            self.assertEqual(commands[2].words[:5], ["-n", "1", "/x/haul-mpi", "dcp", "-p"])
            self.assertIsNotNone(case.check(commands[0], {}, True))
            Path(place, "said").write_text("[now] Seconds: 1.250 on 4 ranks\n", encoding="utf-8")
            shutil.copytree(case.src, case.dst)
            run = {}
            self.assertIsNone(case.check(commands[3], run, True))
            self.assertEqual(run["own_s"], 1.25)

    def test_without_mpi_its_cases_say_what_is_missing(self):
        with unittest.mock.patch.dict("os.environ", PATH=""):
            path, why = peers.obtain(Path("."), "haul-mpi", None, None, True, "dev")
        self.assertIsNone(path)
        self.assertIn("MPI is not installed", why)

    def test_a_lan_run_starts_with_old_files_and_is_right_after_a_copy(self):
        case = lan.Lan("a", FEW)
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            case.prepare(Path(place), peers.Tools(), stack)
            case.fresh(None)
            self.assertEqual(len(case.changed), 5)
            self.assertIsNotNone(case.check(None, {}, True))
            for key in case.changed:
                Path(case.dst, key).unlink()
                Path(case.src, key).rename(Path(case.dst, key))
            self.assertIsNone(case.check(None, {}, True))


if __name__ == "__main__":
    unittest.main()
