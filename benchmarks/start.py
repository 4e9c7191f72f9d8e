"""How long does the command line take to say anything? Compares `fairtrial --help` with the interpreter's own start.

The floor is `python -c pass` of the same interpreter. Both take turns, so that drift falls on both sides. Prints the
medians in milliseconds and their ratio. Exit codes: 0 within 150 ms or 6 times the floor, whichever is more · 1 over.

Run it on a quiet machine.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

N_TURNS: Final = 40
LIMIT_MS: Final = 150.0
LIMIT_RATIO: Final = 6.0
HELP: Final = (str(Path(sys.executable).with_name("fairtrial")), "--help")
FLOOR: Final = (sys.executable, "-c", "pass")


def time_ms(argv: Sequence[str]) -> float:
    """Run a command to its end; how long it took."""
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure both; 1 over the limit."""
    turns = [(time_ms(HELP), time_ms(FLOOR)) for _ in range(N_TURNS + 2)][2:]
    help_ms, floor_ms = (statistics.median(side) for side in zip(*turns, strict=True))
    state = "ok" if help_ms <= max(LIMIT_MS, LIMIT_RATIO * floor_ms) else "over"
    print(f"--help: {help_ms:.1f} ms; floor: {floor_ms:.1f} ms; ratio {help_ms / floor_ms:.1f}: {state}")
    return 0 if state == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
