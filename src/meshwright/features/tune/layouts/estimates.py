"""The compiler's estimates of kernels in scheduled HLO, and the copies without one."""

from meshwright.run.compilers.hlo import Module, calls_of, cycles_of, parse_hlo


def async_copies(text: str) -> int:
    """The number of asynchronous copies, slices and collectives in one execution.

    They have no estimate of cycles in the scheduled HLO text. Those in a loop count once
    per iteration.
    """
    module = parse_hlo(text)
    return sum(
        runs
        for name, runs in control_runs(module).items()
        for each in module.computations[name]
        if each.opcode.endswith("-start") and cycles_of(each) is None
    )


def control_runs(module: Module) -> dict[str, int]:
    """Executions per step of the entry computation and of bodies of loops and branches."""
    inner = {
        callee
        for lines in module.computations.values()
        for each in lines
        if each.opcode not in ("while", "conditional", "call")
        for callee, _ in calls_of(each, module.computations)
    }
    return {
        name: runs
        for name, runs in module.runs.items()
        if name in module.computations and name not in inner
    }


def kernel_cycles(text: str) -> dict[str, float]:
    """The compiler's estimate of cycles of one execution, by instruction name.

    An instruction without an estimate has 0.
    """
    return {
        each.name: float(cycles_of(each) or 0)
        for lines in parse_hlo(text).computations.values()
        for each in lines
    }
