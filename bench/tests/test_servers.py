"""Servers that don't start are said so, and requests are signed as AWS says."""

import shutil
import unittest

import s3
from cloud import Cloud


class Servers(unittest.TestCase):
    def test_a_cloudsim_that_does_not_start(self):
        with self.assertRaisesRegex(RuntimeError, "cloudsim did not start: .*true --until-stdin-closes --trusting --keep sizes says ''"):
            with Cloud(shutil.which("true"), "--keep", "sizes"):
                self.fail("it did not start")

    def test_the_signature_is_that_of_awss_example(self):
        # "Example: GET Object" of the S3 API Reference, "Signature Calculations for the Authorization Header".
        user, region = s3.USER, s3.REGION
        self.addCleanup(setattr, s3, "USER", user)
        self.addCleanup(setattr, s3, "REGION", region)
        s3.USER, s3.REGION = "AKIAIOSFODNN7EXAMPLE", "us-east-1"
        headers = {
            "host": "examplebucket.s3.amazonaws.com",
            "range": "bytes=0-9",
            "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "x-amz-date": "20130524T000000Z",
        }
        secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
        signed = s3.sign(secret, "GET", "/test.txt", "", headers, "20130524T000000Z")
        self.assertTrue(signed.endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"), signed)

    def test_a_remote_is_named_in_the_environment(self):
        remote = s3.S3(9000, "secret").remote("src")
        self.assertEqual(remote["RCLONE_CONFIG_SRC_ENDPOINT"], "http://127.0.0.1:9000")
        self.assertEqual(remote["RCLONE_CONFIG_SRC_FORCE_PATH_STYLE"], "true")


if __name__ == "__main__":
    unittest.main()
