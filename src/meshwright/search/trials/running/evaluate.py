"""One evaluation of a candidate, whose faults become the reason of its outcome."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

from meshwright.search.trials.costs.trial import Request, TrialOutcome

type Evaluate = Callable[..., Any]
"""A function from a candidate to a dict of figures.

For an engine that asks for less than whole evaluations it also takes `fidelity`, the share
of the effort.
"""


def outcome_of(evaluate: Evaluate, request: Request) -> TrialOutcome:
    """TrialOutcome of an evaluation; an exception becomes the reason of its failure."""
    begin = time.process_time()
    values, reason = dict[str, Any](), ""
    candidate = copy.deepcopy(request.candidate)
    try:
        if request.fidelity == 1:
            found = evaluate(candidate)
        else:
            found = evaluate(candidate, fidelity=request.fidelity)
        if isinstance(found, dict):
            # As a journal would give them back, so that a search that goes on is the same.
            values = json.loads(json.dumps(found, default=_number_or_text))
        else:
            reason = f"the evaluation returned {found!r:.60}; wanted a dict of figures"
    except (Exception, SystemExit) as fault:  # noqa: BLE001  any fault of the user's code
        lines = str(fault).strip().splitlines() or [""]
        reason = f"{type(fault).__name__}: {lines[0]}"[:300]
    return TrialOutcome(values, reason, time.process_time() - begin)


def _number_or_text(value: Any) -> Any:
    """A figure that JSON does not know, such as a NumPy scalar, as a number or text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
