"""A unit with the calls of its IR, from which its search begins."""

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit
from meshwright.features.policies.compiler.replay import Decisions
from meshwright.features.policies.compiler.tuning.call_graph import (
    CallGraph,
    parse_call_graph,
)
from meshwright.features.policies.compiler.tuning.search import InliningSearch
from meshwright.features.policies.compiler.tuning.states import Sized

_CODE_FLAGS = ("-O", "-m", "-f")
"""Flags that the optimiser and the code generator read."""


@dataclass(frozen=True, slots=True)
class PreparedUnit:
    """A unit, its calls, and a file of its IR, which compiles faster than its source."""

    unit: Unit
    ir: Path
    graph: CallGraph

    @property
    def weight(self) -> int:
        """A measure of the time that a search needs."""
        return 1 + sum(len(sites) for sites in self.graph.calls.values())

    def search(
        self, compiler: ClangCompiler, pool: Executor, end_at: float
    ) -> InliningSearch:
        """The search of this unit, which ends at a `time.monotonic()`."""
        source, flags = self._as_ir(compiler)

        def size(decisions: Decisions, fallback: str, by_function: bool) -> Sized:
            made = compiler.replay(
                source, flags, decisions, fallback, by_function=by_function
            )
            return Sized(made.text_bytes, made.inlined, made.functions)

        return InliningSearch(self.graph, size, pool, end_at)

    def _as_ir(self, compiler: ClangCompiler) -> tuple[Path, tuple[str, ...]]:
        """IR and its flags; the source and its own flags if the IR compiles otherwise."""
        unit = self.unit
        flags = (*(flag for flag in unit.flags if flag.startswith(_CODE_FLAGS)), "-w")
        whole = compiler.replay(unit.source, unit.compile_flags, {}).text_bytes
        if compiler.replay(self.ir, flags, {}).text_bytes == whole:
            return self.ir, flags
        return unit.source, unit.compile_flags


def prepare_unit(compiler: ClangCompiler, unit: Unit, folder: Path) -> PreparedUnit:
    """The calls of a unit, with its IR in a folder."""
    text = compiler.ir(unit.source, unit.compile_flags)
    file = folder / f"{unit.name}.ll"
    file.write_text(text)
    return PreparedUnit(unit, file, parse_call_graph(text))
