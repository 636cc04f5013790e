"""Every kind of wrong input: one clear message on stderr, status 2, no traceback."""

import pytest

MESH = ("--mesh", "data=4,model=2")

FN = "def target(): return (lambda x: x), "

OTHERS = {
    "nothing.py": "x = 1\n",
    "one.py": "def only(): return (lambda x: x), (1.0,)\n",
    "several.py": "def a(): ...\ndef b(): ...\ndef needs(x): ...\n",
    "broken.py": "import numpy\nraise RuntimeError('cannot find the weights')\n",
    "syntax.py": "def f(:\n",
    "lacks.py": "import a_module_that_is_not_there\n",
    "none.py": "schedules = {'a': []}\ndef target(): return None\n",
    "three.py": "schedules = {'a': []}\ndef target(): return 1, 2, 3\n",
    "nofn.py": "schedules = {'a': []}\ndef target(): return 7, ()\n",
    "noargs.py": "schedules = {'a': []}\ndef target(): return (lambda x: x), 5\n",
    "fails.py": "schedules = {'a': []}\ndef target(): raise OSError('disk')\n",
    "object.py": "target = 5\n",
    "nul.py": "\0",
    "badschedules.py": f"schedules = 3\n{FN}(1.0,)\n",
    "badschedule.py": f"schedules = {{'a': 3}}\n{FN}(1.0,)\n",
    "notactic.py": f"schedules = {{'a': [3]}}\n{FN}(1.0,)\n",
    "noarray.py": f"schedules = {{'a': []}}\n{FN}('text',)\n",
    "ends.py": "import sys\nschedules = {'a': []}\ndef target(): sys.exit(3)\n",
    "static.py": f"schedules = {{'a': []}}\n{FN}(object(),)\n",
}

CASES = {
    ("mlp.py:target", "--mesh", "data"): (
        "cannot read 'data' in mesh 'data'; wanted name=size,..."
    ),
    ("mlp.py:target", "--mesh", "data=four"): (
        "cannot read 'data=four' in mesh 'data=four'; wanted name=size,..."
    ),
    ("mlp.py:target", "--mesh", "data=2,data=2"): (
        "axis 'data' stands twice in mesh 'data=2,data=2'"
    ),
    ("mlp.py:target", "--mesh", "data=0"): "axis 'data' has size 0; wanted an int >= 1",
    ("mlp.py", "--mesh", "rows=4", "--schedule", "dp"): (
        "axis 'data' is not in the mesh, which has rows=4"
    ),
    ("mlp.py:target", *MESH): (
        "which schedule? mlp.py:target offers dp, dp+mp, typo (--schedule NAME), "
        "or write --tactics"
    ),
    ("mlp.py", *MESH, "--schedule", "dq"): (
        "no schedule 'dq'; mlp.py:target offers dp, dp+mp, typo (--schedule NAME), "
        "or write --tactics"
    ),
    ("mlp.py", *MESH, "--schedule", "typo"): (
        "pattern 'btach.*' matches nothing; the program's leaves are: batch.y, batch.x"
    ),
    ("mlp.py", *MESH, "--schedule", "dp", "--tactics", "shard({}, 'data')"): (
        "give --schedule or --tactics, not both"
    ),
    ("mlp.py", *MESH, "--tactics", "shard({'x': 0}"): "cannot read tactics \"shard({'x",
    (
        "mlp.py",
        *MESH,
        "--tactics",
        "shrad({'x': 0}, 'data')",
    ): "no tactic 'shrad'; did you mean 'shard'?; there",
    ("mlp.py", *MESH, "--tactics", "shard()"): "cannot make shard(): ",
    ("mlp.py", *MESH, "--tactics", "[[]]"): "[] in '[[]]' is no tactic",
    ("mlp.py", *MESH, "--tactics", "3"): "3 in '3' is no tactic",
    ("mlp.py", *MESH, "--tactics", "().__class__"): (
        "'().__class__' is not allowed in tactics"
    ),
    ("mlp.py", *MESH, "--tactics", "open('/etc/hosts')"): "no tactic 'open'",
    ("mlp.py:tarhet", *MESH): (
        "mlp.py has no 'tarhet'; did you mean 'target'?; it has target, other"
    ),
    ("missing.py", *MESH): "there is no file missing.py; ",
    ("mlp", *MESH): "target 'mlp' is neither path.py[:name] nor pkg.module:name",
    ("no.such:name", *MESH): "there is no module 'no'; for a file write path.py[:name]",
    ("nothing.py", *MESH): (
        "nothing.py has no target; wanted a function without parameters that returns "
        "(fn, args), such as"
    ),
    ("nothing.py:x", *MESH): "nothing.py:x is 1 (int), not a function",
    ("one.py", *MESH): "which schedule? the module of one.py:only offers none; add",
    ("several.py", *MESH): (
        "several.py has several targets; choose one: several.py:a, several.py:b"
    ),
    ("broken.py", *MESH): (
        "importing broken.py failed: RuntimeError: cannot find the weights ("
    ),
    ("syntax.py", *MESH): "importing syntax.py failed: SyntaxError: ",
    ("lacks.py", *MESH): (
        "importing lacks.py failed: ModuleNotFoundError: No module named "
        "'a_module_that_is_not_there' ("
    ),
    (
        "none.py",
        *MESH,
    ): "none.py:target() returned None (NoneType); wanted a function without parameters",
    (
        "three.py",
        *MESH,
    ): "three.py:target() returned (1, 2, 3) (tuple); wanted a function without parameters",
    ("nofn.py", *MESH): "nofn.py:target() returned 7 (int) as fn; wanted a function",
    ("noargs.py", *MESH): (
        "noargs.py:target() returned 5 (int) as args; wanted a tuple of arguments"
    ),
    ("fails.py", *MESH): "fails.py:target() failed: OSError: disk (",
    ("ends.py", *MESH): "ends.py:target() failed: SystemExit: 3 (",
    (
        "folder.py",
        *MESH,
    ): "folder.py is a folder; wanted a file, as in folder.py/model.py",
    ("nul.py", *MESH): "SyntaxError: source code string cannot contain null bytes\n",
    ("mlp.py", *MESH, "--tactics", " "): "tactics are empty; write some, such as",
    ("mlp.py", *MESH, "--tactics", "fsdp(axis='data', axis='model')"): (
        "cannot make fsdp(axis='data', axis='model'): each option is written once"
    ),
    ("mlp.py", *MESH, "--tactics", "fsdp('data', **{'stage': 3})"): (
        "each option is written once, by its name"
    ),
    ("object.py:target", *MESH): "object.py:target is 5 (int), not a function",
    ("badschedules.py", *MESH): "schedules is 3 (int); wanted {name: [tactics]}",
    ("badschedule.py", *MESH): "schedule 'a' is 3, not a list of tactics",
    ("notactic.py", *MESH): "3 is no tactic; wanted mw.shard(...) and the like",
    ("noarray.py", *MESH): "x is a str, not an array; pass it in static_argnums or",
    ("static.py", *MESH): "x is a object, not an array; pass it in static_argnums or",
}


@pytest.mark.parametrize("arguments", CASES, ids=lambda a: " ".join(a))
def test_wrong_input_is_one_message(arguments, run, mlp, write):
    for name, text in OTHERS.items():
        write(name, text)
    write("folder.py/model.py", "")
    done = run("plan", *arguments)
    assert CASES[arguments] in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert (done.status, done.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "Missing argument 'TARGET'"),
        (("plan", "mlp.py"), "which mesh? write --mesh"),
        (("plna", "mlp.py"), "no command 'plna'; did you mean 'plan'?"),
        (("plan", "mlp.py", "--mash", "a=1"), "No such option: --mash"),
    ],
)
def test_wrong_usage_is_one_message(arguments, words, run):
    done = run(*arguments)
    assert done.status == 2
    assert words in done.err


def test_help_names_the_commands(run):
    done = run("--help")
    assert done.status == 0
    for command in ("plan", "explain", "check"):
        assert command in done.out
