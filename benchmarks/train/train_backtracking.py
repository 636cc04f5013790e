"""Train the trees that tell the search for packings which placements are hopeless.

Complete searches run on generated problems. At some of the moments at which the trees
would be asked, their features are recorded together with the placements. If the search
finds a packing, the oracle is: the placements were hopeless unless the packing has them,
for the search has tried everything that they allow. LightGBM learns these answers;
problems are divided into training and validation, and the limit is set so that at most
`--wrong` of the good placements are given up. Searches end by the clock, so that another
machine gives somewhat other examples. Needs `meshwright[learned]`.

    python -m benchmarks train train_backtracking [--problems 400] [--seconds 4]
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import lightgbm
import numba
import numpy as np

from benchmarks.allocation.allocation_instances import known_packing
from benchmarks.harness import Options, benchmark, option
from meshwright.features.allocate import Buffer
from meshwright.features.allocate.canonical.backtracking_trees import (
    FEATURES,
    LEAST_NODES,
    MODEL,
    measure,
)
from meshwright.features.allocate.canonical.depth_first import (
    new_state,
    step_choice,
    take_back,
)
from meshwright.features.allocate.canonical.independent_parts import step_parts
from meshwright.features.allocate.canonical.packing_state import (
    CHOICE,
    FAIL,
    FOUND,
    NONE,
    OPEN,
    SUCCESS,
    PackingState,
)
from meshwright.features.allocate.problem.sections import BufferColumns, columns_of
from meshwright.search.arrays import Bools, Floats, Ints

MOST_ROWS = 2_000
SLICE = 50_000
HOPELESS_PER_GOOD = 30
ORDERS = ("WAT", "TAW", "TWA", "AWT")


def problem(seed: int) -> tuple[Sequence[Buffer], int]:
    """Buffers with a known packing, and a capacity with up to 4 % to spare."""
    rng = Random(seed)
    buffers, _, capacity = known_packing(rng.randrange(20, 160), seed + 10**6)
    return buffers, int(capacity * (1 + rng.choice((0.0, 0.01, 0.02, 0.04))))


class Journal(NamedTuple):
    """Recorded moments: features and offsets, [rows]; how many were met and kept [2]."""

    rows: Floats
    offsets: Ints
    counts: Ints


@numba.njit(cache=False, nogil=True)
def recorded_run(
    c: BufferColumns, st: PackingState, journal: Journal, every: int, most_nodes: int
) -> int:
    """As `canonical.run` without trees; records every so many questions to the trees."""
    z, counts = st.scalars[0], journal.counts
    end = z.nodes + most_nodes
    while z.top >= 0:
        if z.nodes >= end:
            return OPEN
        f = z.top
        if st.frames[f].kind != CHOICE:
            z.signal = step_parts(st, f, z.signal)
            continue
        if z.signal == FAIL and not take_back(c, st, f):
            z.top = f - 1
            continue
        is_asked = z.nodes - st.frames[f].entered >= LEAST_NODES
        if z.signal == FAIL and is_asked:
            counts[0] += 1
            if counts[0] % every == 0 and counts[1] < len(journal.rows):
                measure(c, st, f)
                journal.rows[counts[1], :] = st.features
                journal.offsets[counts[1], :] = st.offset
                counts[1] += 1
        z.signal = step_choice(c, st, f, z.signal)
    return FOUND if z.signal == SUCCESS else NONE


def examples(seed: int, seconds: float) -> tuple[Floats, Bools]:
    """Features and answers of the oracle from the searches of one problem."""
    buffers, capacity = problem(seed)
    free = [b for b in buffers if b.offset is None]
    columns = columns_of((*free, *(b for b in buffers if b.offset is not None)))
    rng = np.random.default_rng(seed)
    found_rows, found_labels = [], []
    for order in ORDERS:
        n = len(columns.size)
        noise = np.exp(rng.normal(0.0, 0.3, n)) if order == "AWT" else np.ones(n)
        state = new_state(columns, capacity, order, noise)
        kept: list[tuple[Floats, Ints]] = []
        end_s, outcome, every = time.perf_counter() + seconds / len(ORDERS), OPEN, 1
        while outcome == OPEN and time.perf_counter() < end_s:
            journal = Journal(
                np.zeros((MOST_ROWS, len(FEATURES))),
                np.zeros((MOST_ROWS, n), np.int64),
                np.zeros(2, np.int64),
            )
            outcome = recorded_run(columns, state, journal, every, SLICE)
            num_kept = journal.counts[1]
            kept.append((journal.rows[:num_kept], journal.offsets[:num_kept]))
            every = min(every * 2, 16)
        if outcome != FOUND:
            continue
        x = np.concatenate([x for x, _ in kept])
        is_good = np.concatenate(
            [((at < 0) | (at == state.offset)).all(axis=1) for _, at in kept]
        )
        hopeless = rng.permutation(np.flatnonzero(~is_good))
        most = HOPELESS_PER_GOOD * max(is_good.sum(), 1)
        chosen = np.concatenate([np.flatnonzero(is_good), hopeless[:most]])
        found_rows.append(x[chosen])
        found_labels.append(~is_good[chosen])
    if not found_rows:
        return np.zeros((0, len(FEATURES))), np.zeros(0, bool)
    return np.concatenate(found_rows), np.concatenate(found_labels)


def flattened(model: dict[str, Any]) -> dict[str, list[Any]]:
    """The trees of a LightGBM model as flat lists."""
    flat: dict[str, list[Any]] = {
        name: [] for name in ("root", "feature", "threshold", "left", "right", "value")
    }

    def add(node: dict[str, Any]) -> int:
        index = len(flat["feature"])
        is_leaf = "leaf_value" in node and "split_feature" not in node
        flat["feature"].append(-1 if is_leaf else node["split_feature"])
        flat["threshold"].append(0.0 if is_leaf else round(node["threshold"], 6))
        flat["value"].append(round(node["leaf_value"], 5) if is_leaf else 0.0)
        flat["left"].append(-1)
        flat["right"].append(-1)
        if not is_leaf:
            flat["left"][index] = add(node["left_child"])
            flat["right"][index] = add(node["right_child"])
        return index

    for tree in model["tree_info"]:
        flat["root"].append(add(tree["tree_structure"]))
    return flat


@benchmark(
    option("--problems", type=int, default=400),
    option("--seconds", type=float, default=4.0),
    option("--wrong", type=float, default=0.002),
    option("--examples", default="", help="file that keeps the examples"),
    out=MODEL,
)
def main(options: Options) -> None:
    """Collect examples, train, choose the limit, and write the model."""
    parts = []
    for seed in range(options.problems):
        x, y = examples(seed, options.seconds)
        parts.append((x, y, np.full(len(y), seed)))
        if seed % 20 == 19:
            total = sum(len(y) for _, y, _ in parts)
            print(f"{seed + 1} problems, {total} examples", flush=True)
    x, y, seeds = (np.concatenate(column) for column in zip(*parts, strict=True))
    if options.examples:
        np.savez_compressed(options.examples, x=x, y=y, seeds=seeds)
    held_out = seeds % 5 == 0
    if y[held_out].all() or not y[~held_out].any():
        options.error(
            "too few problems: no good placement is held out, or none is hopeless"
        )
    booster = lightgbm.train(
        {
            "objective": "binary",
            "num_leaves": 15,
            "learning_rate": 0.1,
            "min_data_in_leaf": 50,
            "num_threads": 1,
            "seed": 0,
            "verbose": -1,
        },
        lightgbm.Dataset(x[~held_out], y[~held_out].astype(float)),
        num_boost_round=40,
    )
    scores = booster.predict(x[held_out], raw_score=True)
    good = np.sort(scores[~y[held_out]])
    limit = float(good[int(len(good) * (1 - options.wrong))]) if len(good) else np.inf
    caught = float((scores[y[held_out]] > limit).mean())
    print(
        f"{len(y)} examples, {y.mean():.1%} hopeless; held out: {len(good)} good, "
        f"{options.wrong:.2%} of them given up, {caught:.1%} of the hopeless caught"
    )
    stored = {"features": FEATURES, "limit": limit, **flattened(booster.dump_model())}
    options.out.write_text(json.dumps(stored) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
