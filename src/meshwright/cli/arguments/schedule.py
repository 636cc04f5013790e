"""The tactics of a command: a schedule of the target's module, by name, or written out."""

from collections.abc import Sequence

from meshwright.app.tactic_text import parse_tactics
from meshwright.cli.arguments.target import Target
from meshwright.errors import TargetError
from meshwright.partitioner.tactics import Tactic


def choose_tactics(
    target: Target, schedule: str | None, written: str | None
) -> tuple[Tactic, ...]:
    """The tactics that `--schedule` names or `--tactics` writes out.

    With neither option: the tactics of the target's only schedule.
    """
    if written is not None:
        if schedule is not None:
            raise TargetError("give --schedule or --tactics, not both")
        return parse_tactics(written)
    offered = target.schedules
    if schedule is None:
        if len(offered) != 1:
            raise TargetError(f"which schedule? {_offer(target)}")
        schedule = next(iter(offered))
    if schedule not in offered:
        raise TargetError(f"no schedule {schedule!r}; {_offer(target)}")
    tactics = offered[schedule]
    if not isinstance(tactics, Sequence) or isinstance(tactics, str):
        raise TargetError(
            f"schedule {schedule!r} is {tactics!r}, not a list of tactics; wanted "
            f"schedules = {{{schedule!r}: [mw.fsdp('data')]}}, or the like"
        )
    return tuple(tactics)


def _offer(target: Target) -> str:
    if target.schedules:
        names = ", ".join(target.schedules)
        return f"{target.name} offers {names} (--schedule NAME), or write --tactics"
    return (
        f"the module of {target.name} offers none; add schedules = {{name: [tactics]}} "
        "to it, or write --tactics \"shard({'x': 0}, axis='data')\""
    )
