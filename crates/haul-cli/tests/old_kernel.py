"""Runs a program as Linux 3.10 would, on x86-64: system calls that came later don't exist there. Exits with 99 where no filter can be
set."""
import ctypes
import os
import struct
import sys

LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# From sched_setattr to rseq, without seccomp; from pidfd_send_signal on.
LATER = [n for n in range(314, 335) if n != 317] + list(range(424, 470))
# O_TMPFILE came with 3.11; before that its directory was what could not be opened for writing.
OPENAT, O_TMPFILE = 257, 0x410000
ENOSYS, EISDIR = 38, 21


def step(code, value, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, value)


program = [step(LOAD, 0)]
for number in LATER:
    program += [step(EQUAL, number, 0, 1), step(RETURN, ERRNO | ENOSYS)]
program += [step(EQUAL, OPENAT, 0, 4), step(LOAD, 16 + 8 * 2), step(AND, O_TMPFILE)]
program += [step(EQUAL, O_TMPFILE, 0, 1), step(RETURN, ERRNO | EISDIR), step(RETURN, ALLOW)]
steps = ctypes.create_string_buffer(b"".join(program))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
libc = ctypes.CDLL(None)
wanted = Filter(len(program), ctypes.addressof(steps))
if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.byref(wanted), 0, 0):
    sys.exit(99)
os.execv(sys.argv[1], sys.argv[1:])
