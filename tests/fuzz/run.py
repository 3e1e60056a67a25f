"""Fuzzes the compiled scanner: `python -m tests.fuzz.run SECONDS [SEED [FILE]]`; FILE is another build of it (`make sanitize`)."""

import sys
import time
from dataclasses import dataclass

from tests.fuzz.differential import compare_request, compare_response
from tests.fuzz.heads import Heads
from tests.fuzz.scanners import Scanners


@dataclass
class Tally:
    """How many heads of each direction there were, and how many the scanner took."""

    requests: int = 0
    responses: int = 0
    taken: int = 0


def fuzz(scanners: Scanners, *, seed: int, seconds: float) -> Tally:
    """Compares for so long. Raises Differ for the first difference."""
    heads, tally, previous = Heads(seed), Tally(), None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(50):
            tally.requests += 1
            taken = compare_request(scanners, heads.request(), previous)
            if taken is not None:
                previous = taken
            tally.responses += 1
            answered = compare_response(scanners, heads.response())
            tally.taken += (taken is not None) + (answered is not None)
    return tally


def main() -> None:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if sys.argv[2:] and sys.argv[2] else time.time_ns() & 0xFFFFFFFF
    scanners = Scanners(sys.argv[3] if len(sys.argv) > 3 else None)
    print(f"Fuzzing {scanners.file} for {seconds:g} s; seed {seed}.", flush=True)
    print(f"No difference: {fuzz(scanners, seed=seed, seconds=seconds)}.")


if __name__ == "__main__":
    main()
