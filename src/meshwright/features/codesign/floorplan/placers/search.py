"""A search for a placement under way: stages, walkers, sources, and what is on disk."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.app.output.files import make_folder
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.legality import faults_of
from meshwright.features.codesign.floorplan.costs.tables import make_tables
from meshwright.features.codesign.floorplan.netlist.files import write_whole
from meshwright.features.codesign.floorplan.netlist.placement import (
    ChipPlacement,
    read_placement,
)
from meshwright.features.codesign.floorplan.placers.schedule import (
    Limit,
    StopWatch,
    stage_at,
    stages_of,
)
from meshwright.features.codesign.floorplan.placers.sources import (
    SOURCES,
    PlacementSource,
    SourceOptions,
)
from meshwright.features.codesign.floorplan.placers.store import Store
from meshwright.features.codesign.floorplan.placers.task import PlacementTask
from meshwright.features.codesign.floorplan.placers.walkers import (
    PlacementWalker,
    best_of,
    make_walker,
    run_all,
)
from meshwright.features.codesign.floorplan.starts.analytic import Patience
from meshwright.features.codesign.floorplan.starts.room import make_room
from meshwright.features.codesign.floorplan.starts.start import legalize, scatter
from meshwright.features.codesign.floorplan.views.curve import SearchPoint
from meshwright.features.codesign.floorplan.views.found import FoundPlacement

_ROUND = 20_000
"""Moves of each walker between two looks at the clock."""

_LONGEST, _LONGEST_START = 0.5, 0.25
"""Longest time that one placement of a source may take, as a share of the budget."""

_STARTS = 0.08
"""Share of the budget after which no further start is begun."""

type OnProgress = Callable[[SearchPoint], None]


class PlacementSearch:
    """A search under way."""

    def __init__(
        self,
        task: PlacementTask,
        limit: Limit,
        files: tuple[Path, ...],
        store: Store | None,
    ) -> None:
        self.task, self.limit, self.store = task, limit, store
        self.files = files if store is None else (*files, store.best)
        seconds = limit.seconds if limit.evaluations is None else None
        self.stages = stages_of(task.method, task.has_start, seconds)
        self.tables = make_tables(task.frame)
        self.room = make_room(self.tables, task.frame)
        self.is_interrupted = False
        self.evaluations, self.stage = 0, -1
        self.curve: list[SearchPoint] = []
        self.source: PlacementSource | None = None
        self.source_saved: dict[str, np.ndarray] | None = None
        self.identity = task.identity(limit) if store else {}
        saved = store and store.load(self.identity)
        self.walkers = [self._walker(i) for i in range(task.num_walkers)]
        self.watch = StopWatch(task.clock)  # building walkers may compile the loops
        self.best = self._best_placement()
        self.best_proxy = best_of(self.walkers).proxy
        if saved:
            self._restore(*saved)
        else:
            self._save()  # before the first placement is on disk, which it has to beat
        self._write()

    def _walker(self, number: int) -> PlacementWalker:
        task, tables = self.task, self.tables
        seed = 1000 * task.seed + number
        start = task.frame if task.has_start else scatter(task.frame, tables, seed)
        legal = legalize(start, tables, self.room)
        unit = np.array(task.weights)
        return make_walker(tables, self.room, legal, unit, seed)

    def _best_placement(self) -> ChipPlacement:
        return best_of(self.walkers).placement(self.task.frame)

    @property
    def unit(self) -> float:
        """The unit of temperature: the proxy of the best start per block that moves."""
        count = len(self.room.hard) + len(self.room.soft)
        starts = {"start", *(stage.starts for stage in self.stages)}
        proxies = [point.proxy for point in self.curve if point.stage in starts]
        return min(proxies, default=self.best_proxy) / max(count, 1)

    def run(self, progress: OnProgress) -> None:
        """Run all stages until the budget is used up."""
        if not self.curve:
            self._note("start", progress)
            self._save()
        if not len(self.room.hard) + len(self.room.soft):
            return
        with ThreadPoolExecutor(self.task.num_walkers) as pool:
            length = 0.0
            while (used := self.used) < 1:
                index, _, _ = stage_at(self.stages, used)
                if index != self.stage:
                    self._begin_stage(index, pool, progress)
                    continue
                length = self._round(pool, used, length)
                self._note(self.stages[self.stage].name, progress)
                self._save()

    @property
    def used(self) -> float:
        return self.limit.used(self.watch.seconds, self.evaluations)

    def _round(self, pool: ThreadPoolExecutor, used: float, length: float) -> float:
        """Run every walker for one round; returns the share of the budget that it took.

        length: share that the round before took.
        """
        index, begin, share = stage_at(self.stages, used)
        stage, count = self.stages[index], _ROUND
        if stage.source:
            self.evaluations += self._propose(stage.source, pool)
            self._keep_best()
            return self.used - used
        if self.limit.evaluations is not None:
            left = round((1 - begin) * share * self.limit.evaluations)
            count = max(1, min(count, left))
            length = count / self.limit.evaluations
        end = begin + length / share
        if any(begin <= meeting < end for meeting in stage.meetings):
            best = best_of(self.walkers)
            for walker in self.walkers:
                if walker is not best:
                    walker.go_to(best)
        run_all(pool, self.walkers, self.unit * stage.heat(begin, end, count))
        self.evaluations += count
        self._keep_best()
        return self.used - used

    def _propose(self, name: str, pool: ThreadPoolExecutor) -> int:
        """Let the first walker stand at the next placement of a source, if it is better.

        Returns the evaluations that it took, per walker.
        """
        if self.source is None:
            self.source = self._make_source(name, pool, _LONGEST)
            if self.source_saved is not None:
                self.source.restore(self.source_saved)
        placement, evaluations = self.source.propose()
        self._stand_at(self.walkers[0], placement)
        return max(1, evaluations // self.task.num_walkers)

    def _make_source(
        self, name: str, pool: ThreadPoolExecutor, share: float
    ) -> PlacementSource:
        """What proposes placements; each may take a share of the budget of seconds."""
        task, limit, patience = self.task, self.limit, None
        if limit.evaluations is None:
            patience = Patience(share * limit.seconds, task.clock)
        options = SourceOptions(
            task.seed, task.num_walkers, task.policy, pool, patience
        )
        return SOURCES[name](task.frame, task.weights, options)

    def _stand_at(
        self, walker: PlacementWalker, placement: ChipPlacement | None
    ) -> None:
        """Let a walker stand at a placement, if it is better than its own."""
        if placement is not None:
            made = make_walker(
                self.tables, self.room, placement, walker.weights, self.task.seed
            )
            if made.proxy < walker.proxy:
                walker.go_to(made)

    def _keep_best(self) -> None:
        """Take the best walker's placement if it is better than the best so far."""
        best = best_of(self.walkers)
        if best.proxy < self.best_proxy:
            self.best_proxy, self.best = best.proxy, self._best_placement()
            self._write()

    def _begin_stage(
        self, index: int, pool: ThreadPoolExecutor, progress: OnProgress
    ) -> None:
        """Let walkers go on from where they are, the best placement, or new starts."""
        self.stage, self.source = index, None
        stage = self.stages[index]
        if not stage.keeps_places:
            for walker in self.walkers:
                best = make_walker(
                    self.tables, self.room, self.best, walker.weights, self.task.seed
                )
                walker.go_to(best)
        if stage.starts:
            self._go_to_starts(stage.starts, pool)
            self._keep_best()
            self._note(stage.starts, progress)
        self._save()

    def _go_to_starts(self, name: str, pool: ThreadPoolExecutor) -> None:
        """Let each walker stand at a placement of a source, if it is better than its own.

        Once starts have taken their share of the budget, the others go to the best one.
        """
        source = self._make_source(name, pool, _LONGEST_START)
        for number, walker in enumerate(self.walkers):
            if number == 0 or self.used < _STARTS:
                self._stand_at(walker, source.propose()[0])
            else:
                walker.go_to(best_of(self.walkers))

    def _note(self, stage: str, progress: OnProgress) -> None:
        walker = best_of(self.walkers)
        point = SearchPoint(
            stage,
            round(self.watch.seconds, 3),
            self.evaluations * len(self.walkers),
            self.best_proxy,
            *walker.costs,
        )
        self.curve.append(point)
        progress(point)

    def _write(self) -> None:
        """Put the best placement on disk."""
        faults = faults_of(self.best, self.task.frame)
        assert not faults, f"a placer made an illegal placement: {faults[0]}"
        if self.files:
            text = self.result().to_plc().encode()
            for path in self.files:
                make_folder(path.parent, FloorplanError)
                write_whole(path, text)

    def _save(self) -> None:
        if self.store is None:
            return
        facts = {
            "identity": self.identity,
            "walkers": len(self.walkers),
            "evaluations": self.evaluations,
            "seconds": self.watch.seconds,
            "stage": self.stage,
            "curve": [list(point) for point in self.curve],
        }
        saved = [walker.saved() for walker in self.walkers]
        source = None if self.source is None else self.source.saved()
        self.store.save(facts, saved, source)

    def _restore(
        self,
        facts: dict[str, Any],
        saved: list[dict[str, np.ndarray]],
        source: dict[str, np.ndarray] | None,
    ) -> None:
        self.source_saved = source
        for walker, arrays in zip(self.walkers, saved, strict=True):
            walker.restore(arrays)
        self.evaluations, self.stage = facts["evaluations"], facts["stage"]
        self.watch = StopWatch(self.task.clock, facts["seconds"])
        self.curve = [SearchPoint(*point) for point in facts["curve"]]
        assert self.store is not None
        if self.store.best.exists():
            self.best = read_placement(self.task.frame.netlist, self.store.best)
            weights = np.array(self.task.weights)
            seed = self.task.seed
            kept = make_walker(self.tables, self.room, self.best, weights, seed)
            self.best_proxy = kept.proxy

    def result(self) -> FoundPlacement:
        """The best placement so far, with all figures."""
        return FoundPlacement(
            self.best,
            self.task.weights,
            tuple(self.curve),
            self.evaluations * self.task.num_walkers,
            self.watch.seconds,
            self.is_interrupted,
        )
