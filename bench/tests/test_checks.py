"""The checks find what they are for; the data is the same each time."""

import os
import tempfile
import unittest
from pathlib import Path

import cloud
import data
from cases import backblaze, flat


class Folder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name, "files")
        self.files = data.tree(6, 3000, 4)
        self.links = data.links(self.files, 2)
        data.write(self.files, self.folder)
        data.make_links(self.links, self.folder)

    def wrong(self):
        return data.check_folder(self.files, self.folder, True, self.links, times=True)

    def path(self, number):
        return Path(self.folder, self.files[number].key)

    def test_what_was_written_is_right(self):
        self.assertIsNone(self.wrong())

    def test_a_changed_byte(self):
        path = self.path(3)
        stat = path.stat()
        path.write_bytes(b"x" + path.read_bytes()[1:])
        os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
        self.assertIn("wrong content", self.wrong())

    def test_another_time(self):
        os.utime(self.path(1))
        self.assertIn("another modification time", self.wrong())

    def test_a_missing_file_and_one_too_many(self):
        self.path(5).rename(Path(self.folder, "more"))
        self.assertIn("6 files", self.wrong())
        self.assertIn("more", self.wrong())

    def test_another_target(self):
        key = next(iter(self.links))
        Path(self.folder, key).unlink()
        os.symlink("elsewhere", Path(self.folder, key))
        self.assertIn("links", self.wrong())

    def test_a_fingerprint_changes_with_a_rewritten_file(self):
        before = data.fingerprint(self.folder)
        self.assertEqual(data.fingerprint(self.folder), before)
        os.utime(self.path(2))
        self.assertNotEqual(data.fingerprint(self.folder), before)


class Facts(unittest.TestCase):
    def test_stored_keys_are_compared_by_size_crc_and_name(self):
        lines = ["5 0123456789abcdef a", "6 0000000000000001 b c"]
        self.assertIsNone(cloud.difference(lines, lines[::-1]))
        for found in (lines[:1], [*lines, "1 00 d"], ["5 ffffffffffffffff a", lines[1]], lines + lines[:1]):
            self.assertIsNotNone(cloud.difference(lines, found))

    def test_reports_of_two_endpoints_add_up(self):
        one = {"requests": {"GetObject": 2}, "total_requests": 2, "throttled": 1, "cost_usd": 0.5, "first_get_or_put_ms": None}
        two = {"requests": {"GetObject": 1, "PutObject": 4}, "total_requests": 5, "peak_in_flight": 9, "first_get_or_put_ms": 30}
        total = cloud.add_up([one, two])
        self.assertEqual(total["requests"], {"GetObject": 3, "PutObject": 4})
        self.assertEqual((total["total_requests"], total["throttled"], total["cost_usd"]), (7, 1, 0.5))
        self.assertEqual((total["peak_in_flight"], total["first_get_or_put_ms"]), (9, 30))

    def test_the_texts_bucket(self):
        sizes = [size for _, size in backblaze.sizes(412_000_000)]
        self.assertEqual((len(sizes), min(sizes), max(sizes)), (35, 990, 412_000_000))
        self.assertAlmostEqual(sum(sizes) / 1e9, 2.8, 1)

    def test_a_mixed_tree_holds_what_it_says(self):
        files = data.mixed(300, 7, 3_000_000)
        self.assertEqual(len({file.key for file in files}), 300)
        self.assertEqual(len({os.path.dirname(file.key) for file in files}), 7)
        self.assertEqual(sum(file.size > 500_000 for file in files), 3)
        self.assertAlmostEqual(sum(file.size for file in files) / 3e6, 1.0, 1)

    def test_content_depends_on_the_name_alone(self):
        self.assertEqual(b"".join(data.blocks("a", 100)), b"".join(data.blocks("a", 100)))
        self.assertNotEqual(b"".join(data.blocks("a", 100)), b"".join(data.blocks("b", 100)))
        known = data.describe("a", 0, 100)
        self.assertEqual(data.read("a", 0, 100, data.blocks("a", 100)), known)

    def test_crc_is_that_of_the_catalogue(self):
        # The check value of CRC-64/NVME in the catalogue of parametrised CRC algorithms.
        self.assertEqual(data.crc64nvme(b"123456789"), 0xAE8B14860A799888)

    def test_names_are_summed_in_any_order(self):
        self.assertEqual(flat.summary([b"a", b"b"]), flat.summary([b"b", b"a"]))
        self.assertNotEqual(flat.summary([b"a", b"b"]), flat.summary([b"a", b"c"]))
        self.assertNotEqual(flat.summary([b"a"]), flat.summary([b"a", b"a"]))


if __name__ == "__main__":
    unittest.main()
