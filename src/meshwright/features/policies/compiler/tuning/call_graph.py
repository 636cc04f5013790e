"""Calls between functions of a unit, as clang's IR has them before optimisation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.features.policies.compiler.replay import CallSite
from meshwright.features.policies.compiler.savings import CallPlace

_DEFINE = re.compile(r'^define .*?@("[^"]+"|[\w.$]+)\(.*?!dbg !(\d+)')
_INTERNAL = re.compile(
    r'^define (?:internal|private|linkonce|available).*?@("[^"]+"|[\w.$]+)\(', re.M
)
_CALL = re.compile(r'\b(?:call|invoke)\b.*?@("[^"]+"|[\w.$]+)\(')
_DBG = re.compile(r"!dbg !(\d+)")
_ALIAS = re.compile(r"^!(\d+) = (?:distinct )?!(DILocation|DISubprogram)\((.*)\)$")
_FIELD = re.compile(r'(\w+): ("[^"]*"|!?\w+)')


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Calls between the functions of a unit, by the function that calls."""

    calls: Mapping[str, tuple[CallSite, ...]]
    names: Mapping[str, str]
    """By name in a call site, the symbol of a function."""
    first_lines: Mapping[str, int]
    """By name in a call site, the line where a function begins."""
    internal: frozenset[str] = frozenset()
    """Symbols of functions that may go with their last call: no other unit calls them."""

    def sites(self, inlined: frozenset[CallSite]) -> frozenset[CallSite]:
        """Calls about which a compilation decides, if it inlines `inlined`.

        A call that is inlined brings the calls that its callee has left.
        """
        return self._walked(inlined)[0]

    def left(self, inlined: frozenset[CallSite]) -> Mapping[str, tuple[CallSite, ...]]:
        """Calls that the code of each function has left, if `inlined` are inlined."""
        return self._walked(inlined)[1]

    def _walked(
        self, inlined: frozenset[CallSite]
    ) -> tuple[frozenset[CallSite], dict[str, tuple[CallSite, ...]]]:
        """The calls that are decided about, and those that each function has left."""
        left: dict[str, tuple[CallSite, ...]] = {}
        seen: set[CallSite] = set()

        def rest(function: str, path: frozenset[str]) -> tuple[CallSite, ...]:
            if function in left:
                return left[function]
            open_sites = list(self.calls.get(function, ()))
            out: list[CallSite] = []
            while open_sites:
                site = open_sites.pop()
                seen.add(site)
                if site not in inlined:
                    out.append(site)
                elif site.callee not in path:
                    inner = rest(site.callee, path | {site.callee})
                    open_sites += [within(each, site) for each in inner]
                if len(seen) > _MOST_SITES:
                    break
            if function not in path - {function}:
                left[function] = tuple(out)
            return tuple(out)

        for function in self.calls:
            rest(function, frozenset({function}))
        return frozenset(seen), left

    def is_in(self, site: CallSite, part: frozenset[str]) -> bool:
        """Whether a call is in the code of one of these functions."""
        return self.names.get(site.caller, site.caller) in part

    def place(self, site: CallSite) -> CallPlace:
        """A call as remarks name it."""
        name, line, column = site.places[0].rsplit(":", 2)
        # LLVM keeps 16 bits of the difference, which macros can make negative.
        offset = (int(line) + 0x8000) % 0x10000 - 0x8000
        row = self.first_lines.get(name, 0) + offset
        caller = self.names.get(site.caller, site.caller)
        return CallPlace(caller, site.callee, row, int(column.split(".")[0]))

    def components(self) -> list[frozenset[str]]:
        """Sets of functions that call each other, directly or not.

        Decisions in one leave the code of the others as it is.
        """
        group = {name: {name} for name in self.calls}
        for caller, sites in self.calls.items():
            for site in sites:
                one, other = group[caller], group[site.callee]
                if one is not other:
                    one |= other
                    for name in other:
                        group[name] = one
        unique = {id(each): frozenset(each) for each in group.values()}
        return [each for each in unique.values() if any(self.calls[n] for n in each)]


_MOST_SITES = 20_000
"""Call sites of a unit beyond which no more are listed (recursion that is inlined)."""


def within(site: CallSite, outer: CallSite) -> CallSite:
    """The copy of a call that inlining another one makes of it."""
    return CallSite(site.callee, (*site.places, *outer.places))


def parse_call_graph(text: str) -> CallGraph:
    """The call graph of a module's IR with debug locations."""
    nodes: dict[str, dict[str, str]] = {}
    bodies: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    function = ""
    for line in text.splitlines():
        if line.startswith("define"):
            found = _DEFINE.match(line)
            function = found[1].strip('"') if found else ""
            if found:
                bodies[function] = (found[2], [])
        elif line.startswith("!"):
            if found := _ALIAS.match(line):
                nodes[found[1]] = dict(_FIELD.findall(found[3]))
        elif function and (found := _CALL.search(line)) and (dbg := _DBG.search(line)):
            bodies[function][1].append((found[1].strip('"'), dbg[1]))
    calls: dict[str, tuple[CallSite, ...]] = {}
    names: dict[str, str] = {}
    first_lines: dict[str, int] = {}
    for symbol, (scope, made) in bodies.items():
        program = nodes[scope]
        name = program.get("linkageName", program.get("name", symbol)).strip('"')
        names[name] = symbol
        first = first_lines[name] = int(program.get("line", "0"))
        sites = {
            CallSite(callee, (_place(name, nodes[dbg], first),))
            for callee, dbg in made
            if callee in bodies and dbg in nodes
        }
        calls[symbol] = tuple(sorted(sites))
    internal = frozenset(name.strip('"') for name in _INTERNAL.findall(text))
    return CallGraph(calls, names, first_lines, internal)


def _place(name: str, location: Mapping[str, str], first: int) -> str:
    """The place of a call in a function that begins at line `first`, as LLVM prints it."""
    # LLVM keeps 16 bits of the difference, which macros can make negative.
    line = (int(location.get("line", "0")) - first) & 0xFFFF
    return f"{name}:{line}:{location.get('column', '0')}"
