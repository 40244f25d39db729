"""Where things are."""

import os
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent
BUILDS = Path(os.environ.get("BENCH_BUILDS") or REPOSITORY / "target" / "bench")
RUST_TARGET = BUILDS / "rust"
RUST_PROGRAMS = RUST_TARGET / "release"
