"""Search for the input of a program that contains its tokens."""

import math
from collections.abc import Collection

from meshwright.program.analysis.input_ranges import find_ranges
from meshwright.program.ir import Program, is_small_integer

_RANKS_WITHOUT_TABLE = (2, 3)
"""Numbers of dims that an input may have to count as tokens without indexing a table.

They are [batch, length], or microbatches of that. Integers of more dims are images.
"""


def find_token_input(program: Program, state: Collection[int]) -> int | None:
    """The position of the input with the tokens of a step; `None` if there is none.

    Tokens are integers of two dims or more, such as [accumulation, batch, length], that
    index a table: an embedding, or the classes of a loss. Of several such inputs the
    largest is taken, and the first of equally large ones. Sequence lengths and masks
    index nothing. If no input indexes a table, the first one of two or three dims is
    taken, unless its integers have 8 bits or less: such inputs are quantized weights,
    or images.

    state: positions of inputs whose updated value the step returns; these are not data.
    """
    integers = [
        i
        for i, value in enumerate(program.inputs)
        if i not in state and "int" in value.dtype and len(value.shape) > 1
    ]
    if not integers:
        return None
    bounds = find_ranges(program).bounds
    sizes = {i: math.prod(program.inputs[i].shape) for i in integers if i in bounds}
    if sizes:
        return max(sizes, key=lambda i: sizes[i])
    inputs, ranks = program.inputs, _RANKS_WITHOUT_TABLE
    wide = (i for i in integers if not is_small_integer(inputs[i].dtype))
    return next((i for i in wide if len(inputs[i].shape) in ranks), None)
