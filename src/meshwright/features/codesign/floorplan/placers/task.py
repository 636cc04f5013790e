"""What a search for a placement is about, and how another task is told from it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.frame import digests_of
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.placers.schedule import Limit


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """What a search is about; a resumed one must have the same."""

    frame: ChipPlacement
    has_start: bool
    weights: tuple[float, float, float]
    method: str
    seed: int
    num_walkers: int
    policy: Path | None
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        if self.policy is not None and self.method != "policy":
            raise FloorplanError(
                f"a policy is given, which the method {self.method!r} does not use; "
                "wanted the method 'policy'"
            )

    def identity(self, limit: Limit) -> dict[str, Any]:
        netlist = self.frame.netlist
        return {
            "nodes": len(netlist.nodes),
            "nets": sum(map(bool, netlist.sinks)),
            "weights": list(self.weights),
            "method": self.method,
            **({"start": True} if self.has_start else {}),
            "seed": self.seed,
            "walkers": self.num_walkers,
            "evaluations": limit.evaluations,
            **({"policy": str(self.policy)} if self.policy else {}),
            "contents": digests_of(self.frame),
        }
