"""The figures: against values worked out by hand, most of them the HPC text's own."""

import unittest

import stats

# The text's seconds for 1,000 × 1 MB up, by number of transfers.
UP = {1: 1293, 4: 330, 8: 199, 16: 199, 32: 199}


class Stats(unittest.TestCase):
    def test_speed_up_and_efficiency_are_the_texts(self):
        shares = {n: round(100 * share) for n, share in stats.efficiency(UP).items()}
        self.assertEqual(shares, {1: 100, 4: 98, 8: 81, 16: 41, 32: 20})
        self.assertAlmostEqual(stats.speed_up(UP)[8], 6.497, 3)

    def test_without_one_transfer_there_is_no_speed_up(self):
        self.assertEqual(stats.speed_up({4: 10.0, 8: 5.0}), {})
        self.assertEqual(stats.efficiency({}), {})

    def test_ratio_is_taken_within_a_round(self):
        # The second round was slow for both; the third has no partner.
        self.assertEqual(stats.ratio({1: 2.0, 2: 30.0, 3: 9.0, 4: 6.0}, {1: 1.0, 2: 10.0, 4: 2.0}), 3.0)
        self.assertIsNone(stats.ratio({1: 2.0}, {2: 1.0}))
        self.assertIsNone(stats.ratio({1: 2.0}, {1: 0.0}))

    def test_spread_shows_a_span_if_there_is_one(self):
        self.assertEqual(stats.spread([1.0, 3.0, 2.0]), "2.00 (1.00–3.00)")
        self.assertEqual(stats.spread([1.234], 1), "1.2")
        self.assertIsNone(stats.median([]))


if __name__ == "__main__":
    unittest.main()
