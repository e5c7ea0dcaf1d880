"""A lock that jobs on one machine share, so that they don't run beside a measurement."""

import contextlib
import fcntl
import sys
import time

# Others that share the lock wait no longer than this, unless a single round takes longer.
HOLD_SECONDS = 170
WAIT_SECONDS = 30


class Quiet:
    """An exclusive lock on a file, if one is given, held for as many rounds as fit into HOLD_SECONDS."""

    def __init__(self, path):
        self.path, self.file, self.since = path, None, 0.0

    def begin(self):
        """Takes the lock unless it is held; measures without it when it doesn't come free for WAIT_SECONDS."""
        if not self.path or self.file:
            return
        file = open(self.path, "a", encoding="utf-8")
        for _ in range(WAIT_SECONDS * 10):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.file, self.since = file, time.monotonic()
                return
            time.sleep(0.1)
        file.close()
        print(f"bench: {self.path} stays locked: measuring without it", file=sys.stderr)

    def end(self, round_seconds):
        """Gives the lock back if another round of this length would hold it for too long."""
        if self.file and time.monotonic() - self.since + round_seconds > HOLD_SECONDS:
            self.release()

    def release(self):
        if self.file:
            self.file.close()
            self.file = None
