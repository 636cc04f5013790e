"""Generated C: static functions that call each other, without headers."""

import random


def c_program(functions: int, seed: int) -> str:
    """A file in which function k calls up to two functions before it."""
    draw = random.Random(seed)
    lines: list[str] = []
    for k in range(functions):
        calls = [draw.randrange(k) for _ in range(min(k, draw.randint(1, 2)))]
        body = "".join(f"  x += f{c}(x ^ {draw.randint(1, 99)});\n" for c in calls)
        work = "".join(
            f"  x = x * {draw.randint(3, 99)} + table[x & {draw.randint(1, 63)}];\n"
            for _ in range(draw.randint(1, 6))
        )
        kind = "static " if k < functions - 1 else ""
        lines.append(f"{kind}int f{k}(int x)\n{{\n{work}{body}  return x;\n}}\n")
    return "extern int table[64];\n" + "\n".join(lines)
