"""Recipes are read strictly: errors have the line and the nearest known entry."""

import pytest

from meshwright.errors import RecipeError
from meshwright.features.train.recipes.read_recipe import load_recipe, parse_recipe

WHOLE = """\
[model]
program = "model.py:make"

[data]
text = "books/*.txt"
sequence = 8
batch = 4

[run]
steps = 10
"""


def test_a_short_recipe_has_defaults_for_all_the_rest():
    recipe = parse_recipe(WHOLE, "r.toml")
    assert recipe.data.text == ("books/*.txt",)
    assert recipe.optimizer.name == "adamw"
    assert recipe.partition.mesh == {"data": -1}
    assert recipe.checkpoint.keep == 3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "steps = 10",
            "step = 10",
            "r.toml:10: unknown entry run.step; did you mean 'steps'",
        ),
        ("[run]", "[runs]", "r.toml:9: unknown entry runs; did you mean 'run'"),
        ("steps = 10", "steps = '10'", "r.toml:10: run.steps is '10'; wanted a whole"),
        ("steps = 10", "steps = true", "r.toml:10: run.steps is True; wanted a whole"),
        ("steps = 10", "steps = 0", "r.toml:10: run.steps is 0; wanted 1 or more"),
        ("steps = 10", "", r"r.toml:9: \[run\] lacks steps"),
        ("[run]\nsteps = 10", "", "r.toml: it lacks run"),
        (
            "batch = 4",
            "batch = 4\ntokens = 't.npy'",
            "names text and tokens; wanted one of text, tokens, source and mixture",
        ),
        ("sequence = 8", "", "data.sequence is 0; wanted the tokens"),
        ("batch = 4", "batch = 4\nheld_out = 1", "data.held_out is 1; wanted 0 to"),
        ("steps = 10", "steps = 10\nevaluate_every = 5", "add data.held_out"),
        ("[run]", "[partition]\nmesh = {a = 0}\n[run]", "sizes of 1 or more"),
        ("[run]", "[partition]\nmesh = {a = -1, b = -1}\n[run]", "at most one -1"),
        ("[run]", "[partition]\nmesh = {a = 1.5}\n[run]", "partition.mesh.a is 1.5"),
        (
            "[run]",
            "[partition]\nmesh = 3\n[run]",
            "partition.mesh is 3; wanted a table",
        ),
        ("[run]", "partition = 3\n[run]", "unknown entry data.partition"),
        ("text = ", "text = 3 # ", "data.text is 3; wanted a list, each item a text"),
        ("[run]", "[run", "r.toml: "),
        ("[run]", "[checkpoint]\nkeep = 0\n[run]", "r.toml:10: checkpoint.keep is 0"),
        (
            "[run]",
            "[checkpoint]\nmode = 'top'\n[run]",
            "mode is 'top'; wanted one of min",
        ),
        (
            "[run]",
            "[optimizer]\nclip_norm = -1\n[run]",
            "r.toml:10: optimizer.clip_norm is",
        ),
        ("[run]", "[optimizer]\nclip_norm = nan\n[run]", "clip_norm is nan; wanted a"),
        (
            "[run]",
            "[partition]\nbudget = -1\n[run]",
            "r.toml:10: partition.budget is -1",
        ),
        (
            "steps = 10",
            "steps = 10\naccumulate = 3",
            "r.toml:11: run.accumulate is 3, which",
        ),
        (
            "steps = 10",
            "steps = 10\non_nan = 'go'",
            "on_nan is 'go'; wanted stop, skip",
        ),
        (
            "[run]",
            "[checkpoint]\nbest = 1\nmetric = 'accuracy'\n[run]",
            "r.toml:11: checkpoint.metric is 'accuracy', which this run never saves; "
            "wanted loss",
        ),
        (
            "[run]",
            "[checkpoint]\nbest = 1\nmetric = 'evaluation_loss'\n[run]",
            "r.toml:11: checkpoint.metric is 'evaluation_loss', .*run.evaluate_every = 100",
        ),
        (
            "[run]",
            "held_out = 0.1\n[checkpoint]\nbest = 1\nmetric = 'evaluation_loss'\n"
            "[run]\nevaluate_every = 11",
            "run.evaluate_every is 11, after the last step",
        ),
        (
            "[run]",
            "[data.mixture.a]\ntext = 'a.txt'\n[run]",
            "r.toml:4: data names text and mixture; wanted one",
        ),
        ('text = "books/*.txt"', "mixture.a = {}", "data.mixture.a names no examples"),
        (
            'text = "books/*.txt"',
            "mixture.a = { tokens = 't.npy', weight = 0 }",
            "data.mixture.a.weight is 0; wanted a number above 0",
        ),
        (
            'text = "books/*.txt"',
            "mixture.a = { tokens = 't.npy', wieght = 1 }",
            "unknown entry data.mixture.a.wieght; did you mean 'weight'",
        ),
    ],
)
def test_an_entry_that_is_wrong_is_named_with_its_line(old, new, words):
    assert old in WHOLE
    with pytest.raises(RecipeError, match=words):
        parse_recipe(WHOLE.replace(old, new), "r.toml")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match="cannot read a recipe from"):
        load_recipe(tmp_path / "none.toml")
