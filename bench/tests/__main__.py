"""Runs these tests and closes with a line of counts like that of Rust's test runner, which `tests/run.sh` adds up."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    done = unittest.TextTestRunner().run(unittest.defaultTestLoader.discover(str(HERE)))
    failed = len(done.failures) + len(done.errors)
    passed = done.testsRun - failed - len(done.skipped)
    print(f"bench: {passed} passed; {failed} failed; {len(done.skipped)} skipped")
    sys.exit(1 if failed else 0)
