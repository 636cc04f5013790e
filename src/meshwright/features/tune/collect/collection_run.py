"""The collection of a data set: configurations that are compiled, then timed in passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from meshwright.errors import CompilerError
from meshwright.features.tune.collect.measurement_journal import MeasurementJournal
from meshwright.features.tune.iree.toolchain import cpu_name
from meshwright.features.tune.learned.measured_graph import Provenance


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """The amount of work of one collection.

    configs: number of configurations (choices of layouts or tile sizes) to compile.
    passes: number of times that each configuration is measured.
    """

    configs: int
    passes: int
    seed: int


@dataclass(frozen=True, slots=True)
class CollectionRun:
    """One collection, which repeats nothing that its journal has.

    Configurations have numbers; 0 is the compiler's default.
    """

    plan: CollectionPlan
    journal: MeasurementJournal
    on_progress: Callable[[str], None]

    @classmethod
    def begin(
        cls,
        path: Path,
        key: str,
        plan: CollectionPlan,
        on_progress: Callable[[str], None],
    ) -> Self:
        """Begin a collection, or go on with the one whose journal is `path`.

        key: hash of the program; a journal of another program is refused.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"program": key, "seed": plan.seed, "configs": plan.configs}
        return cls(plan, MeasurementJournal.open(path, header), on_progress)

    def build(self, names: Sequence[str], build_fn: Callable[[int], bool]) -> list[int]:
        """Compile all configurations; returns the numbers of those that are to be timed.

        names: what each configuration is called in the message of an error.
        build_fn: compiles one, and says whether it is to be timed. A configuration of which
            it fails is recorded as an error, unless that is the default.
        """
        kept: list[int] = []
        for number, name in enumerate(names):
            self.on_progress(f"compiling {number + 1} of {len(names)}")
            if number in self.journal.errors:
                continue
            try:
                if build_fn(number):
                    kept.append(number)
            except (CompilerError, ValueError, RuntimeError) as fault:
                if number == 0:
                    raise
                self.journal.fail(number, f"{name}{fault}"[:300])
        return kept

    def time(
        self, kept: Sequence[int], time_fn: Callable[[int], tuple[int, ...]]
    ) -> None:
        """Time configurations in random order, in each pass of the plan.

        time_fn: nanoseconds of one run of a configuration, and of the default if that runs
            in turn with it.
        """
        random = np.random.default_rng([self.plan.seed, 1])
        for number in range(self.plan.passes):
            self.on_progress(f"pass {number + 1} of {self.plan.passes}")
            for config in map(int, random.permutation(kept)):
                if (number, config) not in self.journal.times:
                    self.journal.add(number, config, *time_fn(config))

    def provenance(
        self,
        kept: Sequence[int],
        ns_fn: Callable[[tuple[int, int]], int],
        **fields: Any,
    ) -> Provenance:
        """The provenance of a data set of the configurations `kept`.

        ns_fn: nanoseconds at a pair of pass and configuration.
        fields: the compiler, and what else is known of the data set.
        """
        last = max(pass_number for pass_number, _ in self.journal.times)
        errors = sorted(self.journal.errors.items())
        return Provenance(
            host=cpu_name(),
            default=0,
            pass_ns=tuple(
                tuple(ns_fn((number, config)) for config in kept)
                for number in range(last + 1)
            ),
            errors=tuple((str(config), error) for config, error in errors),
            **fields,
        )
