"""The plots: well-formed, complete, to scale."""

import re
import unittest
import xml.etree.ElementTree as ElementTree

import curves
import plots

SVG = "{http://www.w3.org/2000/svg}"
CURVES = {"haul": {1: 100.0, 4: 26.0, 8: 20.0}, "rclone": {1: 120.0, 4: 40.0, 8: 39.0}}


class Plots(unittest.TestCase):
    def test_a_page_is_well_formed_and_names_all(self):
        page = ElementTree.fromstring(curves.page("case <1> & more", CURVES, {"haul": 19.0, "s5cmd": 30.0}))
        self.assertEqual(page.tag, f"{SVG}svg")
        words = [text.text for text in page.iter(f"{SVG}text")]
        for word in ("case <1> & more", "Time", "Speed-up T(1)/T(n)", "Efficiency, speed-up / n", "seconds", "--transfers"):
            self.assertIn(word, words)
        # In the time panel's legend the tools' own choices too.
        for word in ("haul", "rclone", "haul, own choice", "s5cmd"):
            self.assertIn(word, words)
        self.assertEqual(len(list(page.iter(f"{SVG}polyline"))), 6)
        self.assertEqual(len(list(page.iter(f"{SVG}circle"))), 18)
        self.assertNotIn("href", ElementTree.tostring(page, encoding="unicode"))

    def test_no_page_of_a_single_point(self):
        self.assertIsNone(curves.page("x", {"haul": {4: 1.0}}, {"haul": 1.0}))
        self.assertIsNone(curves.page("x", {}, {"haul": 1.0}))

    def test_without_one_transfer_only_time_is_drawn(self):
        page = curves.page("x", {"haul": {4: 3.0, 8: 2.0}}, {})
        self.assertEqual(page.count("<polyline"), 1)

    def test_points_lie_on_a_logarithmic_axis_from_zero(self):
        drawn = plots.panel("t", "s", [("a", 0, {1: 10.0, 2: 5.0, 4: 0.0})])
        spots = [tuple(map(float, spot)) for spot in re.findall(r'circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
        bottom = plots.HEIGHT - plots.BOTTOM
        self.assertAlmostEqual(spots[1][0], (spots[0][0] + spots[2][0]) / 2, 1)
        self.assertEqual(spots[2][1], bottom)
        self.assertAlmostEqual(bottom - spots[0][1], 2 * (bottom - spots[1][1]), 0)

    def test_axes_end_above_the_largest_value_with_round_ticks(self):
        for largest in (0.031, 0.98, 1.0, 7.3, 199.0, 1293.0):
            end, step = plots.axis(largest)
            self.assertGreaterEqual(end, largest)
            self.assertLess(end, largest * 1.5)
            self.assertIn(round(end / step), range(3, 7))
        self.assertEqual(plots.axis(0.0), (1.0, 0.25))

    def test_table_has_a_line_for_each_point(self):
        table = curves.table(CURVES)
        self.assertEqual(len(table), 2 + 6)
        self.assertEqual(table[3], "| haul | 4 | 26.00 | 3.85 | 96% |")
        self.assertEqual(curves.table({"haul": {4: 1.0}}), [])


if __name__ == "__main__":
    unittest.main()
