"""Writes the tables of `zoo/README.md`: what there is, and published against ours.

    python -m zoo.table [--check]

`--check` writes nothing and fails where the file differs from what would be written.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.catalogue import WORKLOADS
from zoo.figures import load
from zoo.workload import Published, Workload

README = Path(__file__).with_name("README.md")

_PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6))


def programs_table() -> Iterator[str]:
    """A row for each program: description, targets, axes, learned metric."""
    yield "| program | what | targets | best schedule | its axes | learned |"
    yield "|---|---|---|---|---|---|"
    figures = load()
    for workload in WORKLOADS:
        targets = ", ".join(f"`{make.__name__}`" for make in workload.full)
        axes = ", ".join(f"`{axis}`" for axis in workload.mesh)
        yield (
            f"| `{workload.name}` | {workload.title} | {targets} | `{workload.best}` "
            f"| {axes} | {_learned(workload, figures)} |"
        )


def _learned(workload: Workload, figures: dict) -> str:
    """First to last value of the metric for each seed: `loss 5.5 to 2.1, ...`."""
    if workload.name not in figures:
        return "-"
    entry = figures[workload.name]
    runs = [run["metrics"][entry["metric"]] for run in entry["seeds"].values()]
    ends = ", ".join(f"{run['first']:.3g} to {run['last']:.3g}" for run in runs)
    return f"{entry['metric']} {ends} in {entry['steps']} steps"


def published_table() -> Iterator[str]:
    """A line for each published number, with ours and the difference."""
    yield "| model | quantity | published | ours | difference | where it is published |"
    yield "|---|---|---|---|---|---|"
    for workload in WORKLOADS:
        for entry in workload.published:
            yield _published_line(entry)


def _published_line(entry: Published) -> str:
    ours = entry.count()
    difference = 100 * (ours / entry.value - 1)
    return (
        f"| {entry.model} | {entry.quantity} | {_scaled(entry.value)} "
        f"| {_scaled(ours)} | {difference:+.1f} % | {entry.source} |"
    )


def _scaled(number: float) -> str:
    for prefix, size in _PREFIXES:
        if number >= size:
            return f"{number / size:.4g} {prefix}"
    return f"{number:,.0f}"


TABLES = {"programs": programs_table, "published": published_table}


def fill(text: str, names: Sequence[str]) -> str:
    """`text` with the named tables replaced between their marks."""
    for name in names:
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        assert found, f"README.md lacks the mark {start}"
        assert closed, f"README.md lacks the mark {end}"
        text = "\n".join([before + start, *TABLES[name](), end + after])
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 where a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    old = README.read_text(encoding="utf-8")
    new = fill(old, tuple(TABLES))
    if not options.check:
        README.write_text(new, encoding="utf-8")
    elif new != old:
        print("zoo/README.md is not what `python -m zoo.table` writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
