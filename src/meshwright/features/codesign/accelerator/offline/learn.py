"""A design for an application from logged designs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from meshwright.errors import (
    AcceleratorError,
    MachineError,
    NoDesignError,
    did_you_mean,
)
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.logs.application import read_application
from meshwright.features.codesign.accelerator.logs.prime_space import (
    AREA_CAP_MM2,
    NAMES,
    design_of,
    values_of,
)
from meshwright.features.codesign.accelerator.offline.conservative import Conservatism
from meshwright.features.codesign.accelerator.offline.design_logs import (
    ApplicationLog,
    find_logs,
    read_application_log,
)
from meshwright.features.codesign.accelerator.offline.propose import (
    ProposedDesign,
    best_logged,
    propose_designs,
)
from meshwright.features.codesign.accelerator.offline.surrogate import (
    Training,
    train_surrogate,
)
from meshwright.features.codesign.accelerator.offline.training_set import (
    make_training_set,
)
from meshwright.learn.training import CurvePoint, ModelCheckpoints


class Avoid(Enum):
    """Designs that a surrogate learns to avoid, beside those that it overestimates."""

    INFEASIBLE = "infeasible"
    NOTHING = "nothing"


_WEIGHTS = {
    Avoid.INFEASIBLE: Conservatism(),
    Avoid.NOTHING: Conservatism(infeasible=0.0),
}


@dataclass(frozen=True, slots=True)
class LearnedDesign:
    """A design that was learned from logs, and how far the surrogate can be trusted.

    values: of the parameters, by name.
    predicted_ms: `None` for an application without logs, whose scale is not known.
    best_logged_ms: the fastest feasible design of the logs; `None` without logs.
    area_mm2: by the template's own figures. predicted_area_mm2: by the surrogate.
    tau: Kendall's tau on held-out designs, by application.
    refused: better proposals that the template does not have, or that exceed the cap.
    num_logged, num_feasible, num_skipped: designs of all logs, and corrupt records.
    """

    design: Design
    values: Mapping[str, int]
    predicted_ms: float | None
    best_logged_ms: float | None
    area_mm2: float
    predicted_area_mm2: float
    tau: Mapping[str, float]
    refused: int
    num_logged: int
    num_feasible: int
    num_skipped: int


def learn_design(  # noqa: PLR0913  an option each
    folder: Path,
    application: str,
    *,
    area_mm2: float = AREA_CAP_MM2,
    avoid: Avoid = Avoid.INFEASIBLE,
    is_zero_shot: bool = False,
    steps: int = 1500,
    evaluations: int = 4000,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_epoch: Callable[[CurvePoint], None] = lambda point: None,
    say: Callable[[str], None] = lambda text: None,
) -> LearnedDesign:
    """The best design for an application by a surrogate of the logs in a folder.

    Nothing is simulated.
    is_zero_shot: use no logs of the application, only its description, which
        `meshwright accelerator log` writes beside a log.
    steps: of the training. evaluations: of the surrogate, in search of its best design.
    checkpoint: file of the training, from which it goes on if the file exists.
    """
    target, logs = read_logs(folder, application, area_mm2, is_zero_shot, say)
    data = make_training_set(logs, seed)
    weights = _WEIGHTS[avoid]
    surrogate = train_surrogate(
        data,
        Training(area_mm2, weights, steps, seed),
        None if checkpoint is None else ModelCheckpoints(checkpoint),
        on_epoch,
    )
    say("searching the surrogate")
    proposals = propose_designs(
        surrogate,
        data.context_of(target),
        area_mm2,
        starts=best_logged(logs if is_zero_shot else [target]),
        evaluations=evaluations,
        seed=seed,
    )
    design, chosen, refused = first_design(proposals, area_mm2)
    best_ms = None if is_zero_shot else float(np.nanmin(target.runtime_ms))
    return LearnedDesign(
        design=design,
        values=values_of(chosen.genes),
        predicted_ms=None
        if is_zero_shot
        else surrogate.runtime_ms(chosen.merit, application),
        best_logged_ms=best_ms,
        area_mm2=design.area_mm2,
        predicted_area_mm2=chosen.area_mm2,
        tau=surrogate.tau,
        refused=refused,
        num_logged=sum(len(log.genes) for log in logs),
        num_feasible=sum(int(log.is_feasible.sum()) for log in logs),
        num_skipped=sum(log.num_skipped for log in logs),
    )


def read_logs(
    folder: Path,
    application: str,
    area_mm2: float,
    is_zero_shot: bool,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[ApplicationLog, list[ApplicationLog]]:
    """The log of an application, and all logs to learn from within the area.

    The first has no designs for a zero-shot application. Logs without a description say
    nothing about another application, and are left out.
    """
    files = find_logs(folder)
    described = sorted(path.stem for path in folder.glob("[!.]*.json"))
    _require_application(folder, application, list(files), described, is_zero_shot)
    wanted = [
        name
        for name in files
        if (name in described or name == application)
        and not (is_zero_shot and name == application)
    ]
    if application in files and application not in described:
        wanted = [application]
    if not wanted:
        raise AcceleratorError(
            f"{folder} has no logs of other described applications than {application}"
        )
    logs: list[ApplicationLog] = []
    for name in wanted:
        say(f"reading {name}")
        log = read_application_log(
            folder, name, files[name],
            lambda count, name=name: say(f"reading {name}: {count} designs"),
        )  # fmt: skip
        logs.append(log.within(area_mm2))
    if is_zero_shot:
        none = np.zeros((0, len(NAMES)), np.int64)
        context = read_application(folder / f"{application}.json")
        empty = np.zeros(0)
        return ApplicationLog(application, none, empty, empty, context), logs
    return next(log for log in logs if log.name == application), logs


def _require_application(
    folder: Path,
    application: str,
    files: list[str],
    described: list[str],
    is_zero_shot: bool,
) -> None:
    """Fail if an application has no logs, or for zero-shot no description."""
    names = [*files, *(name for name in described if name not in files)]
    if application not in (names if is_zero_shot else files):
        hint = did_you_mean(application, names)
        advice = "" if is_zero_shot else _zero_shot_advice(application, described)
        raise AcceleratorError(
            f"{application!r:.80} is not among the applications of {folder}{hint}; there "
            f"are {', '.join(names if is_zero_shot else files)}{advice}"
        )
    if is_zero_shot and application not in described:
        raise AcceleratorError(
            f"--zero-shot needs a description of {application}: {folder}/{application}"
            ".json, which `meshwright accelerator log` writes beside a log"
        )


def _zero_shot_advice(application: str, described: list[str]) -> str:
    if application in described:
        return (
            f"; {application} is described, so that --zero-shot can do without its logs"
        )
    return "; --zero-shot takes an application that is only described there"


def first_design(
    proposals: list[ProposedDesign], area_mm2: float
) -> tuple[Design, ProposedDesign, int]:
    """The first proposal that the template has within the cap, and how many it passed.

    The template's own figures decide; nothing is simulated.
    """
    for number, proposal in enumerate(proposals):
        try:
            design = design_of(proposal.genes)
        except MachineError:
            continue
        if design.area_mm2 <= area_mm2:
            return replace(design, name="learned"), proposal, number
    raise NoDesignError(
        f"the surrogate finds no design within {area_mm2:g} mm2 among "
        f"{len(proposals)} proposals; raise --area-mm2, or log smaller designs"
    )
