"""Donated memory: which inputs a caller gives away, and which outputs take their memory.

Inputs are donated by name, as in `jax.jit` (`Captured.donated`), or because a step returns
their next value (`donated_inputs`). The checks refuse arrays that could not be given away.
What a compiler then does inside of the step is decided by its passes, and the buffers are
assigned in `predict/memory/buffer_assignment.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.errors import PlanError
from meshwright.program.capture.arguments import is_array
from meshwright.program.capture.capture import Captured
from meshwright.program.ir import Program


def donated_inputs(captured: Captured, donate_state: bool) -> tuple[int, ...]:
    """Positions of the inputs whose memory the caller donates.

    donate_state: also each input whose next value the function returns.
    """
    state = captured.ties.values() if donate_state else ()
    return tuple(dict.fromkeys((*captured.donated, *state)))


def donated_aliases(
    captured: Captured, program: Program, donated: Sequence[int]
) -> dict[int, int]:
    """Position of the donated input whose memory each output takes, by output position.

    State is paired with its own next value; other inputs, as in JAX, with the first
    output of the same shape and dtype.
    """
    aliases = {o: i for o, i in captured.ties.items() if i in donated}
    for position in sorted(set(donated) - set(aliases.values())):
        given = program.inputs[position]
        for number, output in enumerate(program.outputs):
            same = (output.shape, output.dtype) == (given.shape, given.dtype)
            if same and number not in aliases:
                aliases[number] = position
                break
    return aliases


def unaliased_results(
    captured: Captured, program: Program, aliases: Mapping[int, int]
) -> frozenset[int]:
    """Positions of the results that could alias an input's buffer, but do not.

    The new state of a step that does not donate its state is an example: both the input and
    the result are in memory.
    aliases: as `donated_aliases` returns them for the inputs that are donated.
    """
    possible = donated_aliases(captured, program, range(len(program.inputs)))
    return frozenset(possible) - frozenset(aliases)


def require_separate(
    paths: Sequence[str], leaves: Sequence[Any], donated: Sequence[int]
) -> None:
    """Raise `PlanError` if a donated array is passed as two arguments.

    On several devices, XLA refuses such a call on the device that has the array, while
    the other devices wait forever.
    """
    by_array = {id(leaves[i]): i for i in donated if is_array(leaves[i])}
    for i, leaf in enumerate(leaves if by_array else ()):
        other = by_array.get(id(leaf), i)
        if other != i:
            raise PlanError(
                f"{paths[i]} and {paths[other]} are the same array, whose memory cannot be "
                f"donated and be used once more; give one of them as a copy, such as "
                "jnp.copy(x), or donate neither"
            )


def require_own_memory(
    paths: Sequence[str],
    leaves: Sequence[Any],
    placed: Sequence[Any],
    donated: Sequence[int],
) -> None:
    """Raise `PlanError` if a donated JAX array shares memory with another argument.

    Two arrays may share memory: `jax.device_put` to a device where the array already is
    returns an array in the same memory. NumPy arrays may share memory, since JAX never
    donates it.

    paths, leaves: names and values of the arguments' pytree leaves.
    placed: the same leaves after they were put on the devices of the mesh.
    donated: positions of the donated leaves.
    """
    arrays = [
        p if is_array(leaf) else leaf for leaf, p in zip(leaves, placed, strict=True)
    ]
    owner = {buffer: i for i in donated for buffer in _buffers(arrays[i])}
    for i, array in enumerate(arrays if owner else ()):
        for buffer in _buffers(array):
            other = owner.get(buffer, i)
            if other != i:
                raise PlanError(
                    f"{paths[i]} and {paths[other]} are arrays in the same memory, which "
                    "cannot be donated and be used once more; give one of them as a copy, "
                    "such as jnp.copy(x), or donate neither"
                )


def _buffers(leaf: Any) -> list[tuple[Any, int]]:
    """The device and the memory address of each part of an array in this process.

    Empty for PRNG keys, which have no address, and for arrays without elements.
    """
    if not is_array(leaf) or leaf.is_deleted() or not leaf.size:
        return []
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return []
    parts = [shard.data for shard in leaf.addressable_shards]
    kept = (part for part in parts if not part.is_deleted())
    return [(part.device, part.unsafe_buffer_pointer()) for part in kept]
