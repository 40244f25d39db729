"""What is measured."""

from dataclasses import dataclass

DELAY_US = 500  # each way


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str  # own or hot
    tasks: int  # of each process
    processes: int = 1
    delayed: bool = False

    @property
    def hot(self):
        return self.kind == "hot"


WORKLOADS = [
    Workload("own-1", "Keys of one's own, one task", "own", 1),
    Workload("own-64", "Keys of one's own, 64 tasks", "own", 64),
    Workload("own-512", "Keys of one's own, 512 tasks", "own", 512),
    Workload("hot", "One key, 64 tasks of one process", "hot", 64),
    Workload("hot-processes", "One key, 4 processes of 16 tasks", "hot", 16, 4),
    Workload("hot-lone", "One key, 4 processes of one task", "hot", 1, 4),
    Workload("own-64-delayed", "Keys of one's own, 64 tasks, 1 ms away", "own", 64, delayed=True),
    Workload("hot-delayed", "One key, 64 tasks of one process, 1 ms away", "hot", 64, delayed=True),
    Workload("hot-processes-delayed", "One key, 4 processes of 16 tasks, 1 ms away", "hot", 16, 4, delayed=True),
]
