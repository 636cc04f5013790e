"""Collect data on layouts: random layouts of a program, compiled and timed on CPUs."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import CompilerError, LearnedError
from meshwright.features.tune.collect.collection_run import (
    CollectionPlan,
    CollectionRun,
)
from meshwright.features.tune.collect.layout_constraints import (
    Layout,
    constrain_layouts,
)
from meshwright.features.tune.iree.bench import is_within
from meshwright.features.tune.iree.program import plain_array
from meshwright.features.tune.learned.features import MAX_RANK, layout_features
from meshwright.features.tune.learned.hlo.hlo_proto import decode
from meshwright.features.tune.learned.hlo_graph import encoded_module, hlo_graph
from meshwright.features.tune.learned.measured_graph import MeasuredGraph
from meshwright.jax_private import HloProgram, jaxlib_version

_MIN_RUN_S = 0.02
"""CPU seconds of one measurement: the clock of a process then adds well under 1 %."""

_NAMES = re.compile(r"%[\w.-]+")
_METADATA = re.compile(r", metadata=\{[^}]*\}")

Config = dict[str, tuple[Layout, Layout, Layout]]
"""Layouts of result and both operands, by instruction; default layouts if missing."""


def collect_layouts(
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    plan: CollectionPlan,
    folder: Path,
    on_progress: Callable[[str], None] = lambda text: None,
) -> MeasuredGraph:
    """Compile and time a function's program with random layouts, on the CPU.

    Returns the program's graph with the measured times; the default layouts come first.
    Each measurement is written to `NAME.partial.jsonl` at once, and is not repeated if
    the collection is started again. Configurations that lead to the same program are
    merged; one that fails, or computes other numbers than the default, is kept as an
    error.
    """
    lowered = jax.jit(fn, keep_unused=True).lower(*args)
    program = _Program.of(lowered, list(map(plain_array, jax.tree.leaves(args))))
    configs = [*program.sample(plan)]
    path, key = folder / f"{name}.partial.jsonl", _hash(program.text)
    run = CollectionRun.begin(path, key, plan, on_progress)
    executables: dict[int, HloProgram] = {}
    fingerprints: set[str] = set()
    expected: list[Any] = []

    def build(number: int) -> bool:
        executable = program.compile(configs[number])
        results = list(map(np.asarray, executable(*program.leaves)))
        expected.extend([] if expected else results)
        if not all(map(_is_close, results, expected)):
            raise CompilerError("other numbers than the default's")
        print_ = fingerprint(executable.optimized_text())
        is_new = print_ not in fingerprints
        if is_new:
            fingerprints.add(print_)
            executables[number] = executable
        return is_new

    def time_one(number: int) -> tuple[int, int]:
        return paired_cpu_ns(executables[number], executables[0], program.leaves)

    kept = run.build([""] * len(configs), build)
    run.time(kept, time_one)
    return _measured(name, program, configs, run, kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A lowered program and its inputs.

    text: HLO text of the program. leaves: flat arguments.
    nodes: index in the graph of each instruction whose layouts can be chosen, by name.
    ranks: ranks of the instruction's result and operands, by name.
    """

    lowered: Any
    text: str
    leaves: list[Any]
    nodes: Mapping[str, int]
    ranks: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, lowered: Any, leaves: list[Any]) -> "_Program":
        module = decode("HloModule", encoded_module(lowered), "the lowered module")
        instructions = [i for c in module.computations for i in c.instructions]
        by_id = {i.id: i for i in instructions}
        configurable = [int(node) for node in hlo_graph(lowered).configurable]
        if not configurable:
            raise LearnedError(
                "the program has no convolution, dot or reshape: no layout can be chosen"
            )
        ranks: dict[str, tuple[int, ...]] = {}
        for node in configurable:
            consumer = instructions[node]
            arrays = [consumer, *(by_id[operand] for operand in consumer.operand_ids)]
            ranks[consumer.name] = tuple(len(i.shape.dimensions) for i in arrays)
        text = lowered.compiler_ir("hlo").get_hlo_module().to_string()
        nodes = {instructions[node].name: node for node in configurable}
        return cls(lowered, text, leaves, nodes, ranks)

    def sample(self, plan: CollectionPlan) -> Iterator[Config]:
        """Configurations to try: the default, then random layouts of some tensors."""
        yield {}
        random = np.random.default_rng([plan.seed, 0])
        places = [
            (name, tensor)
            for name, ranks in self.ranks.items()
            for tensor, rank in enumerate(ranks[:3])
            if 2 <= rank <= MAX_RANK
        ]
        for number in range(plan.configs - 1):
            most = 3 if number % 2 else max(3, len(places) // 2)
            count = min(len(places), int(random.integers(1, most + 1)))
            config: Config = {}
            for place in random.permutation(len(places))[:count]:
                name, tensor = places[place]
                rank = self.ranks[name][tensor]
                layout = tuple(int(dim) for dim in random.permutation(rank))
                layouts = list(config.get(name, ((), (), ())))
                layouts[tensor] = layout
                config[name] = (layouts[0], layouts[1], layouts[2])
            yield config

    def compile(self, config: Config) -> HloProgram:
        text = constrain_layouts(self.text, config) if config else self.text
        return HloProgram(text, jax.devices("cpu")[0])


def _is_close(result: Any, expected: Any) -> bool:
    """Whether two results differ by no more than another order of additions explains."""
    is_float = jnp.issubdtype(result.dtype, jnp.inexact)
    share = max(1e-3, 4 * float(jnp.finfo(result.dtype).eps) if is_float else 0)
    return is_within(result, expected, share)


def fingerprint(optimized: str) -> str:
    """A hash of an optimised module that does not depend on names and metadata."""
    numbers: dict[str, str] = {}
    body = optimized[optimized.find("\n%") :]
    plain = _METADATA.sub("", body)
    renamed = _NAMES.sub(lambda m: numbers.setdefault(m[0], f"%{len(numbers)}"), plain)
    return _hash(renamed)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def paired_cpu_ns(
    program: HloProgram, default: HloProgram, args: Sequence[Any]
) -> tuple[int, int]:
    """CPU nanoseconds of one run of a program, and of one run of the default.

    The two run in turn, for 20 ms each: other work on this machine changes CPU times by
    half, but hardly the ratio of two programs that run at the same time.
    """
    runs, spent_ns = 0, [0, 0]
    while min(spent_ns) < _MIN_RUN_S * 1e9:
        runs += 1
        for place, each in enumerate((program, default)):
            start_ns = time.process_time_ns()
            jax.block_until_ready(each(*args))
            spent_ns[place] += time.process_time_ns() - start_ns
    return max(1, spent_ns[0] // runs), max(1, spent_ns[1] // runs)


def _measured(
    name: str,
    program: _Program,
    configs: Sequence[Config],
    run: CollectionRun,
    kept: Sequence[int],
) -> MeasuredGraph:
    """The record of all configurations that ran; a time is the median of the passes.

    The load of the machine affects a configuration and the default that runs beside it
    alike. So a time is the ratio of the two, times the default's fastest time.

    kept: numbers of the configurations that ran.
    """
    nodes = dict(sorted(program.nodes.items(), key=lambda item: item[1]))
    nothing = ((), (), ())
    features = [
        [layout_features(configs[number].get(node, nothing)) for node in nodes]
        for number in kept
    ]
    times, default_ns = run.journal.times, run.journal.default_ns
    base_ns = min(default_ns.values())
    provenance = run.provenance(
        kept,
        lambda at: max(1, round(base_ns * times[at] / default_ns[at])),
        compiler="XLA:CPU",
        version=f"jax {jax.__version__}, jaxlib {jaxlib_version}",
        columns="minor to major: result, first operand, second operand",
    )
    return MeasuredGraph(
        name,
        hlo_graph(program.lowered),
        np.array(features, np.float32),
        np.array(list(nodes.values()), np.int64),
        np.median(np.array(provenance.pass_ns), axis=0).astype(np.int64),
        provenance=provenance,
    )
