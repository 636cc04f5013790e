"""A short recipe, which tests change."""

from pathlib import Path

from meshwright.features.train.metrics import read_csv
from meshwright.features.train.recipes.read_recipe import parse_recipe
from meshwright.features.train.train import train

MODELS = Path(__file__).with_name("models.py")

TEXT = f"""
[model]
program = "{MODELS}:linear"

[data]
source = "{MODELS}:numbered"
batch = 8
held_out = 0.25

[partition]
mesh = {{ data = 4 }}
tactics = "cut"

[optimizer]
name = "adam"

[schedule]
options = {{ value = 0.05 }}

[run]
steps = 12
evaluate_every = 6

[checkpoint]
save_every = 4
"""


def recipe(folder, *changes, text=TEXT):
    """The recipe with an output folder; each change is a pair of an old and a new text."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_recipe(f'{text}\n[output]\nfolder = "{folder}"\n', "test.toml")


def run(folder, *changes, **options):
    return train(recipe(folder, *changes), **options)


def losses(folder):
    """The loss of each step, as the text in the CSV file, which is exact."""
    rows = read_csv(Path(folder) / "metrics.csv")
    return {int(row["step"]): row["loss"] for row in rows if row["loss"]}
