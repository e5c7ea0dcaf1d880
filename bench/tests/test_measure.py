"""Commands are measured, stopped and reported as they should be."""

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from measure import measure

SHELL = shutil.which("sh")
ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Measure(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def test_costs_are_the_childs(self):
        burn = "x = bytearray(60_000_000)\nwhile __import__('time').process_time() < 0.3: pass"
        run = measure([sys.executable, "-c", burn], ENVIRONMENT, 60)
        self.assertIsNone(run["problem"])
        self.assertGreaterEqual(run["user_s"] + run["sys_s"], 0.3)
        self.assertGreaterEqual(run["peak_rss_bytes"], 60_000_000)

    def test_output_goes_to_files(self):
        out, log = self.place / "out", self.place / "log"
        run = measure([SHELL, "-c", "echo said; echo why >&2; exit 3"], ENVIRONMENT, 60, out, log)
        self.assertEqual((out.read_text(), log.read_text()), ("said\n", "why\n"))
        self.assertEqual(run["problem"], "exit code 3: why")
        run = measure([SHELL, "-c", "echo reason >&2; exit 4"], ENVIRONMENT, 60)
        self.assertEqual(run["problem"], "exit code 4: reason")

    def test_what_takes_too_long_is_ended(self):
        run = measure([SHELL, "-c", "exec sleep 60"], ENVIRONMENT, 1)
        self.assertEqual(run["problem"], "not done after 1 s")
        self.assertTrue(run["over_limit"])

    def test_what_has_shown_what_is_asked_is_ended_without_a_problem(self):
        mark = self.place / "mark"
        run = measure([SHELL, "-c", f"touch {mark}; exec sleep 60"], ENVIRONMENT, 50, until=mark.exists)
        self.assertIsNone(run["problem"])
        self.assertEqual((run["stopped"], run["over_limit"]), (True, False))

    def test_what_ends_before_is_judged_by_its_exit_code(self):
        run = measure([SHELL, "-c", "exit 5"], ENVIRONMENT, 50, until=lambda: False)
        self.assertEqual((run["stopped"], run["problem"]), (False, "exit code 5: "))

    def test_other_exit_codes_can_be_right(self):
        run = measure([SHELL, "-c", "pwd; exit 1"], ENVIRONMENT, 50, self.place / "out", ends=(0, 1), folder=self.place)
        self.assertIsNone(run["problem"])
        self.assertEqual((self.place / "out").read_text().strip(), str(self.place.resolve()))

    def test_a_program_that_is_not_there(self):
        with self.assertRaisesRegex(RuntimeError, "can't be started"):
            measure([str(self.place / "none")], ENVIRONMENT, 50)


if __name__ == "__main__":
    unittest.main()
