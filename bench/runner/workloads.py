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
    growth: bool = False  # a column of a table of growth
    section: bool = True

    @property
    def hot(self):
        return self.kind == "hot"


WORKLOADS = [
    Workload("own-1", "Keys of one's own, one task", "own", 1, growth=True),
    Workload("own-64", "Keys of one's own, 64 tasks", "own", 64),
    Workload("own-512", "Keys of one's own, 512 tasks", "own", 512),
    Workload("hot", "One key, 64 tasks of one process", "hot", 64),
    Workload("hot-processes", "One key, 4 processes of 16 tasks", "hot", 16, 4),
    Workload("hot-lone", "One key, 4 processes of one task", "hot", 1, 4),
    Workload("hot-lone-16", "One key, 16 processes of one task", "hot", 1, 16),
    Workload("hot-lone-32", "One key, 32 processes of one task", "hot", 1, 32),
    Workload("own-64-delayed", "Keys of one's own, 64 tasks, 1 ms away", "own", 64, trip_ms=1),
    Workload("hot-delayed", "One key, 64 tasks of one process, 1 ms away", "hot", 64, trip_ms=1),
    Workload("hot-processes-delayed", "One key, 4 processes of 16 tasks, 1 ms away", "hot", 16, 4, trip_ms=1),
    Workload("own-64-far", "Keys of one's own, 64 tasks, 10 ms away", "own", 64, trip_ms=10),
    Workload("hot-far", "One key, 64 tasks of one process, 10 ms away", "hot", 64, trip_ms=10),
    Workload("hot-processes-far", "One key, 4 processes of 16 tasks, 10 ms away", "hot", 16, 4, trip_ms=10),
    *(Workload(f"grow-{tasks}", f"{tasks:,} tasks", "own", tasks, growth=True, section=False) for tasks in (10, 100, 1000)),
    *(Workload(f"wait-{tasks}", f"{tasks:,} waiters", "wait", tasks, growth=True, section=False) for tasks in (1, 10, 100, 1000)),
]
