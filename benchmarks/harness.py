"""Shared arguments of all benchmarks: a script declares only its own.

    @benchmark(option("--rounds", type=int, default=15), out=STORED)
    def main(options: Options) -> None:
        rows = options.stored({})
        ...
        options.save(rows)

Beside its own, each script takes `--seed`, `--out`, `--json` and `--repeat`. Figures that
a run adds to its `--out` file or changes there, or notes with `options.note`, become
records in the `--json` file (`benchmarks/records.py`).
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import places
from benchmarks.records import Samples, append_records

RECORDS = places.ROOT / "out" / "benchmarks.jsonl"
"""JSON lines to which runs add their records by default; Git ignores the folder."""

REQUIRED = object()
"""Default of `out` or `seed` that makes the argument required."""


STORED = object()
"""Default of `out` that means `results/SCRIPT.json`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One argument of a script: flags and settings of `add_argument`."""

    flags: tuple[str, ...]
    settings: dict[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    """An argument of a script, with the settings of `argparse.add_argument`."""
    return Option(flags, settings)


ONLY = option("--only", default="", help="cases whose name holds this")
"""The argument by which a script measures some of its cases."""


class Options(argparse.Namespace):
    """Parsed arguments of one run, and the file of figures that it writes.

    seed: `None` if the script draws nothing from a seed. out: `None` if nothing is stored.
    """

    seed: Any
    out: Any
    json: Path
    repeat: int
    _samples: Samples
    _parser: argparse.ArgumentParser
    _before: Any = None
    _saved: str | None = None

    def stored(self, default: Any) -> Any:
        """Figures in the `--out` file; `default` if there is none."""
        if self.out is None or not self.out.is_file():
            return default
        return json.loads(self.out.read_text(encoding="utf-8"))

    def save(self, figures: Any) -> None:
        """Write the `--out` file, if there is one."""
        if self.out is not None:
            if self._saved is None:
                self._before = self.stored(None)
            self._saved = json.dumps(figures, indent=1) + "\n"
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(self._saved, encoding="utf-8")

    def stored_part(self, part: str) -> dict[str, Any]:
        """Stored figures of one part of the `--out` file, by case."""
        return self.stored({}).get(part, {})

    def save_case(self, part: str, case: str, figures: dict[str, Any]) -> None:
        """Add one case to a part of the `--out` file, and print its numbers."""
        everything = self.stored({})
        everything.setdefault(part, {})[case] = figures
        self.save(everything)
        shown = {k: v for k, v in figures.items() if isinstance(v, float | int)}
        print(part, case, {k: round(v, 4) for k, v in shown.items()}, flush=True)

    def note(self, case: str, value: float, unit: str | None = None) -> None:
        """Record a figure that the `--out` file doesn't hold."""
        self._samples.add(case, value, unit)

    def own(self) -> dict[str, Any]:
        """Values of the arguments that the script itself declares."""
        shared = {"seed", "out", "json", "repeat"}
        return {
            name: value
            for name, value in vars(self).items()
            if name not in shared and not name.startswith("_")
        }

    def error(self, message: str) -> NoReturn:
        """End the script because of its arguments; exit status 2."""
        self._parser.error(message)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A script's main function, with the arguments that it declares."""

    run: Callable[[Options], int | None]
    declared: tuple[Option | tuple[Option, ...], ...]
    out: Any
    seed: Any

    def __call__(self, arguments: Sequence[str] | None = None) -> None:
        """Parse the arguments, run as often as asked, and record what was measured."""
        parser = self.parser()
        options = parser.parse_args(arguments, Options())
        options._parser, options._samples = parser, Samples()
        if self.seed is None:
            options.seed = None
        status = self._run_once(options)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(1, options.repeat):
                if options._saved is not None:
                    options.out = Path(folder) / f"{number}.json"
                status = self._run_once(options) or status
        append_records(options.json, self.name, options.seed, options._samples)
        if status:
            raise SystemExit(status)

    @property
    def name(self) -> str:
        """Area and script, such as `search/search_engines`."""
        path = Path(self.run.__code__.co_filename)
        return f"{path.parent.name}/{path.stem}"

    def parser(self) -> argparse.ArgumentParser:
        """A parser of the script's own arguments and the shared ones."""
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks {self.name.replace('/', ' ')}",
            description=self.run.__globals__["__doc__"],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for entry in self.declared:
            if isinstance(entry, Option):
                _add(parser, entry)
            else:
                group = parser.add_mutually_exclusive_group()
                for one in entry:
                    _add(group, one)
        shared = parser.add_argument_group("shared by all benchmarks")
        shared.add_argument("--seed", type=int, help=_seed_help(self.seed),
                            **_default(self.seed))  # fmt: skip
        shared.add_argument("--out", type=Path, help="file or folder of figures",
                            **_default(self.out))  # fmt: skip
        shared.add_argument("--json", type=Path, default=RECORDS,
                            help="JSON lines to which records are added")  # fmt: skip
        shared.add_argument("--repeat", type=int, default=1,
                            help="runs, whose median and spread count")  # fmt: skip
        return parser

    def _run_once(self, options: Options) -> int | None:
        options._before = options._saved = None
        status = self.run(options)
        if options._saved is not None:
            options._samples.add_changes(options._before, json.loads(options._saved))
        return status


def benchmark(
    *declared: Option | tuple[Option, ...], out: Any = None, seed: Any = None
) -> Callable[[Callable[[Options], int | None]], Benchmark]:
    """A decorator that makes `main(options)` a script with the shared arguments.

    declared: the script's own arguments; in a tuple, those that exclude each other.
    out, seed: defaults; `REQUIRED` if the user must say them.
    """

    def decorated(run: Callable[[Options], int | None]) -> Benchmark:
        script = Path(run.__code__.co_filename).stem
        stored = places.RESULTS / f"{script}.json" if out is STORED else out
        return Benchmark(run, declared, stored, seed)

    return decorated


def _add(parser: Any, declared: Option) -> None:
    action = parser.add_argument(*declared.flags, **declared.settings)
    # argparse would leave the method in place of a default.
    assert not hasattr(Options, action.dest), f"Options has a method {action.dest}"


def _default(value: Any) -> dict[str, Any]:
    return {"required": True} if value is REQUIRED else {"default": value}


def _seed_help(seed: Any) -> str:
    return "without effect: nothing is drawn" if seed is None else "of what is drawn"
