"""Heights and CPU seconds of omnimalloc's allocators, as JSON, for `allocate.py`.

    PYTHON benchmarks/allocation/omnimalloc_heights.py < problems > answers

PYTHON is an interpreter that has omnimalloc (PyPI); nothing else is imported. A problem is
one line: a list of (lower, upper, size) and the limit in seconds. An answer is one line:
the height and CPU seconds of each allocator.
"""

import json
import sys
import time

from omnimalloc import Allocation, allocate, allocators

QUICK = ("best_fit", "greedy_by_size", "greedy_by_all", "omni")
"""Allocators without search."""


def main() -> None:
    """Answer one problem after another."""
    for line in sys.stdin:
        rows, seconds = json.loads(line)
        problem = [
            Allocation(index, size, lower, upper)
            for index, (lower, upper, size) in enumerate(rows)
        ]
        named = {name: name for name in QUICK}
        if seconds:
            named |= {
                "hill_climb": allocators.HillClimbAllocator(timeout=seconds),
                "annealing": allocators.SimulatedAnnealingAllocator(timeout=seconds),
                "tabu_search": allocators.TabuSearchAllocator(timeout=seconds),
                "telamalloc": allocators.TelamallocAllocator(timeout=seconds),
                "supermalloc": allocators.SupermallocAllocator(timeout=seconds),
            }
        answer = {}
        for name, allocator in named.items():
            begin_s = time.process_time()
            placed = allocate(problem, allocator)
            spent_s = time.process_time() - begin_s
            answer[name] = max(a.offset + a.size for a in placed), spent_s
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
