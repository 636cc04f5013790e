"""Failures: which call is to blame for an array that could not be computed.

A program whose input failed fails with the same words, which say nothing of the program
that failed first.
"""

from collections.abc import Callable, Sequence

from meshwright.run.cluster.wire.messages import ArrayKey

_MOST = 10_000
"""Arrays that could not be computed of which the reason is kept, the latest ones."""


class FailedArrays:
    """The reasons why arrays could not be computed, in the words of the first failure."""

    def __init__(self) -> None:
        self._reasons: dict[ArrayKey, str] = {}

    def reason(self, array: ArrayKey) -> str | None:
        """The reason why an array could not be computed; `None` if it is not known."""
        return self._reasons.get(array)

    def of_call(
        self, name: str, inputs: Sequence[ArrayKey], outputs: Sequence[ArrayKey]
    ) -> Callable[[str], str]:
        """A function that turns an error of the call's results into the first reason.

        It has to be called in the order of the calls, so that the reasons of inputs are
        known. name: of the call's program, which goes before its own errors.
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
        """Forget the arrays of a session."""
        self._reasons = {k: v for k, v in self._reasons.items() if k.session != session}
