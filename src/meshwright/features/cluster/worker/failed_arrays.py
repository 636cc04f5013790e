"""Failures: the first error behind an array that could not be computed.

A program whose input failed fails with the input's error. That error does not name the
program that failed first, so its name is recorded here.
"""

from collections.abc import Callable, Sequence

from meshwright.features.cluster.wire.messages import ArrayKey

_MOST = 10_000
"""Number of arrays for which a worker remembers why they could not be computed.

The oldest ones are forgotten.
"""


class FailedArrays:
    """The first error that led to each array that could not be computed."""

    def __init__(self) -> None:
        self._reasons: dict[ArrayKey, str] = {}

    def reason(self, array: ArrayKey) -> str | None:
        """The reason why an array could not be computed; `None` if it is not known."""
        return self._reasons.get(array)

    def of_call(
        self, name: str, inputs: Sequence[ArrayKey], outputs: Sequence[ArrayKey]
    ) -> Callable[[str], str]:
        """A function from an error of a call's results to the first error behind it.

        It is the recorded error of one of the inputs, or else the given error, with the
        program's name before it. The functions of several calls must be called in the
        order of the calls, so that errors of inputs are known.

        name: name of the call's program; "" for none.
        """

        def explain(error: str) -> str:
            known = (self._reasons[key] for key in inputs if key in self._reasons)
            reason = next(known, f"{name}: {error}" if name else error)
            self._reasons.update(dict.fromkeys(outputs, reason))
            while len(self._reasons) > _MOST:
                del self._reasons[next(iter(self._reasons))]
            return reason

        return explain

    def forget(self, session: str) -> None:
        """Forget the errors of a session's arrays."""
        self._reasons = {k: v for k, v in self._reasons.items() if k.session != session}
