"""Is our clock honest? Compares `elapsed_ms` of `fairtrial.host.process.run` with `hyperfine -N`, run in turns.

Prints medians and 95th percentiles in milliseconds and says `ok` or `over` for each. The limits are 0.1 ms on the
median and 0.3 ms on the 95th percentile, either way, in the best of three rounds. Exit codes: 0 within the limits · 1
over · 3 no hyperfine.

Run it on a quiet machine. Where there is none, `chrt -f 1 python benchmarks/timing.py` (as root) puts both sides, and
what they start, before all other work.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairtrial.host.process import run

N_ROUNDS = 3
N_TURNS = 5
MEDIAN_LIMIT_MS = 0.1
P95_LIMIT_MS = 0.3
CASES = ((("/bin/true",), 500), (("/bin/sleep", "0.02"), 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One round: the same command measured by both.

    Attributes:
        theirs_ms: What hyperfine measured.
        ours_ms: What we measured.
    """

    theirs_ms: tuple[float, ...]
    ours_ms: tuple[float, ...]

    @property
    def median_difference_ms(self) -> float:
        """Our median minus theirs."""
        return statistics.median(self.ours_ms) - statistics.median(self.theirs_ms)

    @property
    def p95_difference_ms(self) -> float:
        """Our 95th percentile minus theirs."""
        return p95(self.ours_ms) - p95(self.theirs_ms)

    @property
    def worst(self) -> float:
        """The larger of both differences as a share of its limit; above 1 is over."""
        return max(abs(self.median_difference_ms) / MEDIAN_LIMIT_MS, abs(self.p95_difference_ms) / P95_LIMIT_MS)


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile by nearest rank."""
    return sorted(values)[-(-len(values) * 95 // 100) - 1]


def measure_theirs(argv: Sequence[str], n_runs: int, hyperfine: str) -> list[float]:
    """Run hyperfine without a shell; return its times in milliseconds."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "times.json"
        options = ["-N", "--warmup", "2", "--runs", str(n_runs), "--export-json", str(report)]
        result = run([hyperfine, *options, " ".join(argv)], env=os.environ, timeout_s=300)
        if not result.ok:
            sys.exit(f"{hyperfine} failed: {result.stderr.tail.decode(errors='replace')}")
        return [seconds * 1000 for seconds in json.loads(report.read_text())["results"][0]["times"]]


def measure_ours(argv: Sequence[str], n_runs: int) -> list[float]:
    """Run the command ourselves; return its times in milliseconds."""
    results = [run(argv, env=os.environ, timeout_s=60) for _ in range(n_runs + 2)]
    return [result.elapsed_ms for result in results[2:] if result.elapsed_ms is not None]


def compare(argv: Sequence[str], n_runs: int, hyperfine: str) -> Comparison:
    """Measure one round in turns, so that drift falls on both sides."""
    theirs: list[float] = []
    ours: list[float] = []
    for _ in range(N_TURNS):
        theirs += measure_theirs(argv, n_runs // N_TURNS, hyperfine)
        ours += measure_ours(argv, n_runs // N_TURNS)
    return Comparison(theirs_ms=tuple(theirs), ours_ms=tuple(ours))


def main() -> int:
    """Compare all cases; return the exit code."""
    hyperfine = shutil.which("hyperfine")
    if hyperfine is None:
        print("hyperfine: not found on PATH; install it: apt-get install hyperfine", file=sys.stderr)
        return 3
    print(f"{'ms':<17} {'runs':>4}  {'hyperfine':>9} {'ours':>8} {'diff':>7}   {'p95':>8} {'ours':>8} {'diff':>7}")
    all_within = True
    for argv, n_runs in CASES:
        best = min((compare(argv, n_runs, hyperfine) for _ in range(N_ROUNDS)), key=lambda comparison: comparison.worst)
        within = best.worst <= 1
        all_within &= within
        print(
            f"{' '.join(argv):<17} {n_runs:>4}  "
            f"{statistics.median(best.theirs_ms):>9.3f} {statistics.median(best.ours_ms):>8.3f} "
            f"{best.median_difference_ms:>+7.3f}   "
            f"{p95(best.theirs_ms):>8.3f} {p95(best.ours_ms):>8.3f} {best.p95_difference_ms:>+7.3f}  "
            f"{'ok' if within else 'over'}"
        )
    return 0 if all_within else 1


if __name__ == "__main__":
    sys.exit(main())
