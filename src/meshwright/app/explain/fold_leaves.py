"""Shardings of many arrays in few lines: equal layers and equal state share a line."""

from collections.abc import Sequence
from itertools import takewhile

from meshwright.app.output.collapse import group_by, index_free, merge
from meshwright.app.record.parts import Leaf

_NAMES = 4
"""Most alternatives that the braces of one line list, such as 4 in `{a, b, c, d, 2
more}`.
"""


def fold_leaves(leaves: Sequence[Leaf]) -> list[tuple[str, int]]:
    """Pairs of a line about arrays and the number of arrays that share the line.

    Arrays of the same type and sharding share a line if their paths differ only in the
    index of a layer (`blocks.*.up`), or only in their beginning or middle, as the arrays of
    an optimizer do: `state.{params, mu, nu}.blocks.*.up`.
    """
    groups = group_by(leaves, lambda leaf: index_free(str(leaf)))
    layers = [
        (
            merge([leaf.path for leaf in group]),
            str(group[0]).partition(": ")[2],
            len(group),
        )
        for group in groups.values()
    ]
    alike = group_by(
        layers, lambda line: (line[1], line[2], line[0].rpartition(".")[2])
    )
    return [
        (f"{_braced([path for path, _, _ in group])}: {text}", count * len(group))
        for (text, count, _), group in alike.items()
    ]


def _braced(paths: Sequence[str]) -> str:
    """One text for several dotted paths, with the differing components in braces."""
    split = [path.split(".") for path in paths]
    if len(split) == 1:
        return paths[0]
    longest = min(map(len, split)) - 1  # braces need one component per path
    head = min(longest, _num_shared(split))
    tail = min(longest - head, _num_shared([path[::-1] for path in split]))
    middles = [".".join(path[head : len(path) - tail]) for path in split]
    listed = middles[:_NAMES]
    if len(middles) > _NAMES:
        listed.append(f"{len(middles) - _NAMES} more")
    end = split[0][len(split[0]) - tail :]
    return ".".join((*split[0][:head], f"{{{', '.join(listed)}}}", *end))


def _num_shared(paths: Sequence[Sequence[str]]) -> int:
    """The number of leading components that all paths have in common."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in takewhile(lambda column: len({*column}) == 1, columns))
