"""Inlining as clang's remarks tell it, and flags that make clang follow such remarks."""

import re

_INLINED = re.compile(
    r"remark: (?:[^\n]*?: )?'([^'\n]+)' inlined into '[^'\n]+'[^\n]*?"
    r" at callsite ([^;\n]+);"
)


def inlined_lines(remarks: str) -> set[tuple[str, str]]:
    """Symbol and call site of the calls that remarks say were inlined."""
    return set(_INLINED.findall(remarks))


def replay_flags(path: str, fallback: str = "Original") -> list[str]:
    """Flags that make clang follow a replay file.

    fallback: decides about calls without a line: "Original" is the compiler's own
        heuristic, "NeverInline" inlines none.
    """
    options = (
        f"-cgscc-inline-replay={path}",
        "-cgscc-inline-replay-scope=Module",
        f"-cgscc-inline-replay-fallback={fallback}",
    )
    return ["-g1", *(part for option in options for part in ("-mllvm", option))]
