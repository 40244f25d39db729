"""What is measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str  # own, hot or wait
    tasks: int  # of each process
    processes: int = 1
    trip_ms: int = 0  # what the way to the server and back takes longer
    hold_ms: int = 0  # how long each holder keeps the lock
    asleep: bool = False  # whether idle processors may sleep
    growth: bool = False  # a column of a table of growth
    section: bool = True

    @property
    def hot(self):
        return self.kind == "hot"

    @property
    def alone(self):
        """The workload of one task with the same holds, if there are holds."""
        return f"held-{self.hold_ms}-alone" if self.hold_ms else None

    @property
    def lone(self):
        """Whether it is a column of the table of processes of one task."""
        return self.growth and self.hot


def held(milliseconds):
    hold = f"holds of {milliseconds} ms"
    return [
        Workload(f"held-{milliseconds}", f"One key, 64 tasks of one process, {hold}", "hot", 64, hold_ms=milliseconds),
        Workload(f"held-{milliseconds}-processes", f"One key, 4 processes of 16 tasks, {hold}", "hot", 16, 4, hold_ms=milliseconds),
        Workload(f"held-{milliseconds}-lone", f"One key, 4 processes of one task, {hold}", "hot", 1, 4, hold_ms=milliseconds),
        Workload(f"held-{milliseconds}-asleep", f"One key, 4 processes of one task, {hold}, processors that sleep", "hot", 1, 4,
                 hold_ms=milliseconds, asleep=True),
        Workload(f"held-{milliseconds}-alone", f"One key, one task, {hold}", "hot", 1, hold_ms=milliseconds),
    ]


WORKLOADS = [
    Workload("own-1", "Keys of one's own, one task", "own", 1, growth=True),
    Workload("own-64", "Keys of one's own, 64 tasks", "own", 64, growth=True),
    Workload("own-512", "Keys of one's own, 512 tasks", "own", 512, growth=True),
    Workload("hot", "One key, 64 tasks of one process", "hot", 64),
    Workload("hot-processes", "One key, 4 processes of 16 tasks", "hot", 16, 4),
    Workload("hot-lone", "One key, 4 processes of one task", "hot", 1, 4, growth=True),
    Workload("hot-lone-16", "One key, 16 processes of one task", "hot", 1, 16, growth=True),
    Workload("hot-lone-32", "One key, 32 processes of one task", "hot", 1, 32, growth=True),
    Workload("hot-lone-asleep", "One key, 4 processes of one task, processors that sleep", "hot", 1, 4, asleep=True),
    *held(1),
    *held(10),
    Workload("own-64-delayed", "Keys of one's own, 64 tasks, 1 ms away", "own", 64, trip_ms=1),
    Workload("hot-delayed", "One key, 64 tasks of one process, 1 ms away", "hot", 64, trip_ms=1),
    Workload("hot-processes-delayed", "One key, 4 processes of 16 tasks, 1 ms away", "hot", 16, 4, trip_ms=1),
    Workload("hot-lone-delayed", "One key, 4 processes of one task, 1 ms away", "hot", 1, 4, trip_ms=1),
    Workload("own-64-far", "Keys of one's own, 64 tasks, 10 ms away", "own", 64, trip_ms=10),
    Workload("hot-far", "One key, 64 tasks of one process, 10 ms away", "hot", 64, trip_ms=10),
    Workload("hot-processes-far", "One key, 4 processes of 16 tasks, 10 ms away", "hot", 16, 4, trip_ms=10),
    *(Workload(f"grow-{tasks}", f"{tasks:,} tasks", "own", tasks, growth=True, section=False) for tasks in (2, 4, 8, 16, 32, 1000)),
    *(Workload(f"lone-{processes}", f"{processes} processes of one task", "hot", 1, processes, growth=True, section=False)
      for processes in (2, 8)),
    *(Workload(f"wait-{tasks}", f"{tasks:,} waiters", "wait", tasks, growth=True, section=False) for tasks in (1, 10, 100, 1000)),
]
