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

from meshwright.errors import LearnedError
from meshwright.features.tune.collect.layout_constraints import (
    Layout,
    constrain_layouts,
)
from meshwright.features.tune.collect.measurement_journal import MeasurementJournal
from meshwright.features.tune.iree.toolchain import cpu_name
from meshwright.features.tune.learned import (
    MeasuredGraph,
    Provenance,
    hlo_graph,
    layout_features,
)
from meshwright.features.tune.learned.features import MAX_RANK
from meshwright.features.tune.learned.hlo.hlo_proto import decode
from meshwright.features.tune.learned.hlo_graph import encoded_module
from meshwright.jax_private import HloProgram, is_key, jaxlib_version

_MIN_RUN_S = 0.02
"""CPU seconds of one measurement: the clock of a process then adds well under 1 %."""

_NAMES = re.compile(r"%[\w.-]+")
_METADATA = re.compile(r", metadata=\{[^}]*\}")

Config = dict[str, tuple[Layout, Layout, Layout]]
"""Layouts of result and both operands, by instruction; default layouts if missing."""


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """The amount of work of one collection.

    configs: number of configurations (choices of layouts or tile sizes) to compile.
    passes: number of times that each configuration is measured.
    """

    configs: int
    passes: int
    seed: int


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
    program = _Program.of(lowered, list(map(_plain_array, jax.tree.leaves(args))))
    configs = [*program.sample(plan)]
    folder.mkdir(parents=True, exist_ok=True)
    journal = MeasurementJournal.open(
        folder / f"{name}.partial.jsonl", _header(program, plan)
    )
    executables = _compile_all(program, configs, journal, on_progress)
    random = np.random.default_rng([plan.seed, 1])
    for number in range(plan.passes):
        on_progress(f"pass {number + 1} of {plan.passes}")
        for config in random.permutation(list(executables)):
            if (number, int(config)) not in journal.times:
                ns, default_ns = paired_cpu_ns(
                    executables[config], executables[0], program.leaves
                )
                journal.add(number, int(config), ns, default_ns)
    return _measured(name, program, configs, journal, list(executables))


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
        chosen = [int(node) for node in hlo_graph(lowered).configurable]
        if not chosen:
            raise LearnedError(
                "the program has no convolution, dot or reshape: no layout can be chosen"
            )
        ranks: dict[str, tuple[int, ...]] = {}
        for node in chosen:
            made = instructions[node]
            operands = [by_id[operand] for operand in made.operand_ids]
            ranks[made.name] = tuple(len(i.shape.dimensions) for i in (made, *operands))
        text = lowered.compiler_ir("hlo").get_hlo_module().to_string()
        nodes = {instructions[node].name: node for node in chosen}
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


def _header(program: _Program, plan: CollectionPlan) -> dict[str, Any]:
    key = sha256(program.text.encode()).hexdigest()[:16]
    return {"program": key, "seed": plan.seed, "configs": plan.configs}


def _compile_all(
    program: _Program,
    configs: Sequence[Config],
    journal: MeasurementJournal,
    on_progress: Callable[[str], None],
) -> dict[int, HloProgram]:
    """Compile all configurations; returns one executable per distinct program.

    Keys are indices of configurations. Programs that compute other numbers than the
    default are recorded as errors.
    """
    executables: dict[int, HloProgram] = {}
    fingerprints: set[str] = set()
    expected: list[Any] = []
    for number, config in enumerate(configs):
        on_progress(f"compiling {number + 1} of {len(configs)}")
        if number in journal.errors:
            continue
        try:
            executable = program.compile(config)
            results = list(map(np.asarray, executable(*program.leaves)))
        except (ValueError, RuntimeError) as fault:
            if number == 0:
                raise
            journal.fail(number, str(fault)[:200])
            continue
        expected = expected or results
        if not all(map(_is_close, results, expected)):
            journal.fail(number, "other numbers than the default's")
            continue
        print_ = fingerprint(executable.optimized_text())
        if print_ not in fingerprints:
            fingerprints.add(print_)
            executables[number] = executable
    return executables


def _is_close(result: Any, expected: Any) -> bool:
    """Whether two results differ by no more than another order of additions explains."""
    one, other = (
        np.asarray(x, np.result_type(x, np.float32)) for x in (result, expected)
    )
    is_float = jnp.issubdtype(result.dtype, jnp.inexact)
    share = max(1e-3, 4 * float(jnp.finfo(result.dtype).eps) if is_float else 0)
    scale = float(np.max(np.abs(other), initial=0, where=np.isfinite(other)))
    return np.allclose(one, other, rtol=0, atol=share * scale, equal_nan=True)


def _plain_array(leaf: Any) -> Any:
    """An argument in the form that compiled programs take: PRNG keys are integers."""
    array = jnp.asarray(leaf)
    return jax.random.key_data(array) if is_key(array.dtype) else array


def fingerprint(optimized: str) -> str:
    """A hash of an optimised module that does not depend on names and metadata."""
    numbers: dict[str, str] = {}
    body = optimized[optimized.find("\n%") :]
    plain = _METADATA.sub("", body)
    renamed = _NAMES.sub(lambda m: numbers.setdefault(m[0], f"%{len(numbers)}"), plain)
    return sha256(renamed.encode()).hexdigest()


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
    journal: MeasurementJournal,
    kept: Sequence[int],
) -> MeasuredGraph:
    """The record of all configurations that ran; a time is the median of the passes.

    The load of the machine affects a configuration and the default that runs beside it
    alike. So a time is the ratio of the two, times the default's fastest time.

    kept: indices of the configurations that ran.
    """
    nodes = dict(sorted(program.nodes.items(), key=lambda item: item[1]))
    nothing = ((), (), ())
    features = [
        [layout_features(configs[number].get(node, nothing)) for node in nodes]
        for number in kept
    ]
    last = max(pass_number for pass_number, _ in journal.times)
    base_ns = min(journal.default_ns.values())
    pass_ns = tuple(
        tuple(
            max(1, round(base_ns * journal.times[at] / journal.default_ns[at]))
            for at in ((number, config) for config in kept)
        )
        for number in range(last + 1)
    )
    provenance = Provenance(
        compiler="XLA:CPU",
        version=f"jax {jax.__version__}, jaxlib {jaxlib_version}",
        host=cpu_name(),
        columns="minor to major: result, first operand, second operand",
        default=0,
        pass_ns=pass_ns,
        errors=tuple((str(c), error) for c, error in sorted(journal.errors.items())),
    )
    return MeasuredGraph(
        name,
        hlo_graph(program.lowered),
        np.array(features, np.float32),
        np.array(list(nodes.values()), np.int64),
        np.median(np.array(pass_ns), axis=0).astype(np.int64),
        provenance=provenance,
    )
