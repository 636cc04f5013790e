"""The part of a program, such as a pipeline's stage, that an op belongs to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PartSource:
    """An op's source line together with the part of a program that the op belongs to.

    part: equal for ops of one part, whose reductions may be combined.

    It prints as the source line. Lowering copies the source of an op to all device ops
    that it writes for it, so that these are known to belong to the same part.
    """

    source: object
    part: object

    def __str__(self) -> str:
        return str(self.source)

    def __bool__(self) -> bool:
        return bool(str(self))
