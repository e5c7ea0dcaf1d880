"""The report: from runs to JSON, tables, and what is said about failures."""

import json
import tempfile
import unittest
from pathlib import Path

import peers
import report
from cases.common import Case, Command


class Sweep(Case):
    name, what = "sweep", "a case"
    columns = (("first transfer s", "first_transfer_s"),)


def run(seconds, **more):
    return {"wall_s": seconds, "user_s": seconds / 2, "sys_s": 0.0, "peak_rss_bytes": 20_000_000, **more}


class Report(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        tools = peers.Tools({"haul": "/x/haul"}, {}, {"haul": "haul 1", "rclone": "rclone 2"})
        self.results = report.Results(place.name, place.name, tools, quick=False)
        self.case = Sweep()
        self.haul = Command("haul", "haul", ["copy"])
        self.one = Command("haul t1", "haul", ["copy", "--transfers", "1"], series="haul", at=1)
        self.four = Command("haul t4", "haul", ["copy", "--transfers", "4"], series="haul", at=4)
        self.rclone = Command("rclone", "rclone", ["copy"], equal="haul t4", series="rclone", at=4)
        self.results.begin(self.case, [self.haul, self.one, self.four, self.rclone])

    def fill(self):
        for number in (0, 1, 2):
            slow = 10 if number == 2 else 1
            for command, seconds in ((self.rclone, 3.0), (self.haul, 1.0), (self.one, 4.0), (self.four, 1.5)):
                more = {"total_requests": 7, "requests": {"PutObject": 5, "HeadObject": 2}, "first_transfer_s": 0.5}
                self.results.add(self.case, command, number, run(seconds * slow, **more), None)

    def test_table_keeps_the_cases_order_and_takes_ratios_within_rounds(self):
        self.fill()
        lines = self.results.table("sweep", self.results.runs["sweep"])
        self.assertEqual([line.split(" | ")[0] for line in lines[2:]], ["| haul", "| haul t1", "| haul t4", "| rclone"])
        self.assertEqual(
            lines[-1],
            "| rclone | 16.50 (3.00–30.00) | 3.00 | 8.25 (1.50–15.00) | 3.00 | 20 | 7 | 0.50 | 5 PutObject, 2 HeadObject | 2.00, 2.00 |",
        )
        cells = {line.count("|") for line in lines}
        self.assertEqual(len(cells), 1, "all lines have the same number of cells")

    def test_columns_without_a_number_are_left_out(self):
        self.results.add(self.case, self.haul, 1, run(1.0, throttled=0, server_cpu_s=None), None)
        head = self.results.table("sweep", self.results.runs["sweep"])[0]
        for word in ("throttled", "server CPU", "requests", "cost"):
            self.assertNotIn(word, head)

    def test_writes_a_file_a_run_and_a_report_with_its_plot(self):
        self.fill()
        self.results.skip("sweep", "aws", "aws is not installed")
        text = self.results.write()
        folder = self.results.folder
        self.assertEqual(len(list(folder.glob("*.json"))), 8)
        record = json.loads(Path(folder, "sweep-haul-t4-2.json").read_text(encoding="utf-8"))
        self.assertEqual((record["wall_s"], record["run"], record["argv"]), (15.0, 2, ["haul", "copy", "--transfers", "4"]))
        self.assertEqual(Path(folder, "report.md").read_text(encoding="utf-8"), text + "\n")
        self.assertIn("![sweep](sweep.svg)", text)
        self.assertTrue(Path(folder, "sweep.svg").exists())
        self.assertIn("| haul | 4 | 8.25 | 2.67 | 67% |", text)
        self.assertIn("- sweep: aws: aws is not installed", text)
        self.assertIn("- rclone: rclone 2", text)

    def test_a_peer_that_fails_is_a_result_and_haul_that_fails_is_not(self):
        self.results.add(self.case, self.rclone, 1, run(1.0), "not done after 900 s")
        self.assertFalse(self.results.failed_itself())
        self.assertIn("| rclone | not done after 900 s |", self.results.markdown())
        self.assertIn("| haul | not run |", self.results.markdown())
        # In the warm-up too.
        self.results.add(self.case, self.four, 0, run(1.0), "wrong content: x")
        self.assertTrue(self.results.failed_itself())
        self.assertIn("- sweep: haul t4: wrong content: x", self.results.markdown())
        self.assertIn("| haul t4 | failed |", self.results.markdown())

    def test_a_case_that_broke_off_is_said(self):
        self.results.broke("sweep", "cloudsim did not start")
        self.assertTrue(self.results.failed_itself())
        self.assertIn("BROKEN OFF:\n- sweep: cloudsim did not start", self.results.markdown())


if __name__ == "__main__":
    unittest.main()
