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


def pressed_program(functions: int, seed: int) -> str:
    """A file of functions whose loops use more variables than there are registers."""
    draw = random.Random(seed)
    lines: list[str] = []
    for k in range(functions):
        names = [f"x{i}" for i in range(draw.randint(12, 16))]
        start = ", ".join(f"{name} = a[{i}]" for i, name in enumerate(names))
        work = "".join(
            f"    {draw.choice(names)} {draw.choice(['+=', '^=', '-='])}"
            f" {draw.choice(names)} * {draw.choice(names)} + a[i + {i}];\n"
            for i in range(draw.randint(4, 12))
        )
        call = f"    if (x0 & 1) x1 += g({draw.choice(names)});\n"
        total = " + ".join(names)
        lines.append(
            f"long f{k}(long *a, long n)\n{{\n  long {start};\n"
            f"  for (long i = 0; i < n; i++) {{\n{work}{call}  }}\n"
            f"  return {total};\n}}\n"
        )
    return "long g(long);\n" + "\n".join(lines)
