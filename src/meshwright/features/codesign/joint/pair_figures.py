"""Figures of a model on an accelerator: accuracy by training, the rest by simulation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.simulate.evaluate import evaluate_workload
from meshwright.features.codesign.accelerator.workload.layers import (
    Workload,
    workload_of,
)
from meshwright.features.codesign.joint.templates import find_template
from meshwright.features.codesign.nas.searching.space_file import SpaceFile
from meshwright.search.trials import Candidate

_WORST = 1e30
"""A figure of a pair that is not simulated, since it cannot keep a limit."""


@dataclass(slots=True)
class PairFigures:
    """The evaluation of pairs `{"model": ..., "chip": ...}`.

    latency_s, area_mm2: limits. A pair beyond one is not trained, since no accuracy makes
        it feasible. A model is traced and trained once, whatever chips it meets.
    """

    file: SpaceFile
    template: str
    latency_s: float = math.inf
    area_mm2: float = math.inf
    _traced: dict[str, Workload] = field(default_factory=dict[str, Workload])
    _trained: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])

    def __call__(self, candidate: Candidate) -> dict[str, Any]:
        """Accuracy and the model's other figures, energy, latency, area and peak power."""
        design = find_template(self.template).design(candidate["chip"])
        figures = {
            "accuracy": 0.0,
            "energy_j": _WORST,
            "latency_s": _WORST,
            "area_mm2": design.area_mm2,
            "tdp_w": design.tdp_w,
        }
        if design.area_mm2 > self.area_mm2:
            return figures
        model = candidate["model"]
        found = evaluate_workload(design, self._workload(model))
        figures["energy_j"], figures["latency_s"] = found.energy_j, found.seconds
        if found.seconds > self.latency_s:
            return figures
        return {**figures, **self._model_figures(model)}

    @property
    def evaluation(self) -> Any:
        """The evaluation of the models of the file, whose `target` makes them traceable."""
        if not callable(getattr(self.file.evaluate, "target", None)):
            raise AcceleratorError(
                f"`evaluate` of {self.file.text} is {self.file.evaluate!r:.60}; wanted a "
                "nas.Trained, or another that has `target`, from a candidate to (fn, args)"
            )
        return self.file.evaluate

    @property
    def identity(self) -> dict[str, Any]:
        """The conditions of the figures, besides the pair."""
        return {"template": self.template, **self.file.identity}

    def _workload(self, model: Mapping[str, Any]) -> Workload:
        key = json.dumps(model, sort_keys=True)
        if key not in self._traced:
            self._traced[key] = workload_of(*self.evaluation.target(dict(model)))
        return self._traced[key]

    def _model_figures(self, model: Mapping[str, Any]) -> dict[str, Any]:
        key = json.dumps(model, sort_keys=True)
        if key not in self._trained:
            self._trained[key] = self.evaluation(dict(model))
        return self._trained[key]

    def __reduce__(self) -> Any:
        return PairFigures, (self.file, self.template, self.latency_s, self.area_mm2)
