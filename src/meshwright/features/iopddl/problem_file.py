"""File format of the IOPDDL contest on intra-op parallelism (ASPLOS / EuroSys 2025).

A problem is JSON, gzipped or not. `problem.nodes` has half-open `intervals` of live
times, and `costs` and `usages` of each node's choices. `problem.edges` has `nodes`
(pairs) and `costs` (a flat table per edge, one row per choice of the first node).
`problem.usage_limit` may be absent. A cost of 10**18 forbids a choice or a pair. A
solution is a JSON list of one choice index per node.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Floats, Ints, starts_of
from meshwright.search.assignment.problem.assignment import Assignment, Choices, flat

FORBIDDEN = 1e18


def read_assignment(path: Path) -> Assignment:
    """The assignment problem in a file of the contest's format."""
    problem = _field(_read_json(path), path, "problem")
    nodes = _field(problem, path, "problem", "nodes")
    edges = _field(problem, path, "problem", "edges")
    costs = _rows(nodes, path, "nodes", "costs")
    usages = _rows(nodes, path, "nodes", "usages")
    lives = _rows(nodes, path, "nodes", "intervals")
    ends = _rows(edges, path, "edges", "nodes")
    tables = _rows(edges, path, "edges", "costs")
    for what, rows in (("usages", usages), ("intervals", lives)):
        if len(rows) != len(costs):
            raise AssignmentError(
                f"{path}: {len(rows)} {what} for {len(costs)} nodes: give one for each"
            )
    if len(tables) != len(ends):
        raise AssignmentError(f"{path}: {len(ends)} edges with {len(tables)} costs")
    limit = problem.get("usage_limit")
    if limit is not None and not isinstance(limit, int | float):
        raise AssignmentError(f"{path}: usage_limit is {limit!r}: give a number")
    starts = _starts(costs)
    if not np.array_equal(starts, _starts(usages)):
        raise AssignmentError(f"{path}: nodes differ in numbers of costs and of usages")
    return Assignment(
        starts,
        _costs(costs, path),
        _numbers(usages, path),
        _pairs([life or [0, 0] for life in lives], path, "intervals"),
        _pairs(ends, path, "nodes of edges"),
        _starts(tables),
        _costs(tables, path),
        None if limit is None else float(limit),
    )


def write_solution(path: Path, choices: Choices) -> None:
    """Write a solution to a file, as a JSON list of one choice index per node."""
    path.write_bytes(orjson.dumps(np.asarray(choices).tolist()))


def _read_json(path: Path) -> Any:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return orjson.loads(content)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise AssignmentError(f"{path}: is no whole gzip file") from None
    except OSError as error:
        raise AssignmentError(f"{path}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise AssignmentError(f"{path}: is not JSON: {error}") from None


def _field(found: Any, path: Path, *names: str) -> Mapping[str, Any]:
    inner = found.get(names[-1]) if isinstance(found, dict) else None
    if not isinstance(inner, dict):
        raise AssignmentError(f"{path}: has no object {'.'.join(names)!r}")
    return inner


def _rows(found: Mapping[str, Any], path: Path, *names: str) -> list[list[Any]]:
    rows = found.get(names[-1])
    if not isinstance(rows, list) or not all(isinstance(r, list) for r in rows):
        raise AssignmentError(f"{path}: problem.{'.'.join(names)} is no list of lists")
    return rows


def _starts(rows: Sequence[Sequence[Any]]) -> Ints:
    return starts_of([len(row) for row in rows])


def _numbers(rows: Sequence[Sequence[Any]], path: Path) -> Floats:
    try:
        return flat(rows, sum(map(len, rows)))
    except (TypeError, ValueError, OverflowError) as error:
        raise AssignmentError(f"{path}: wanted numbers: {error}") from None


def _costs(rows: Sequence[Sequence[Any]], path: Path) -> Floats:
    costs = _numbers(rows, path)
    costs[costs >= FORBIDDEN] = np.inf
    return costs


def _pairs(rows: Sequence[Sequence[Any]], path: Path, what: str) -> Ints:
    if any(len(row) != 2 for row in rows):
        raise AssignmentError(f"{path}: {what} are to be pairs")
    return _numbers(rows, path).astype(np.int64).reshape(-1, 2)
