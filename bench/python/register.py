"""The file that every holder of the hot key writes: who is inside, who was inside last, and when that ended."""

import os
import struct
import time

FIELDS = struct.Struct("<QQQ")
INSIDE = struct.Struct("<Q")


class Register:
    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)
        self.me = os.getpid()

    def enter(self):
        """Whether somebody else was inside; and for how many ns nobody was, if another process was inside last."""
        inside, last, ended = FIELDS.unpack(os.pread(self.file, 24, 0))
        gap = time.monotonic_ns() - ended if last not in (0, self.me) else None
        os.pwrite(self.file, INSIDE.pack(self.me), 0)
        return inside != 0, gap

    def leave(self):
        """Whether somebody else has been inside meanwhile."""
        inside, _, _ = FIELDS.unpack(os.pread(self.file, 24, 0))
        os.pwrite(self.file, FIELDS.pack(0, self.me, time.monotonic_ns()), 0)
        return inside != self.me
