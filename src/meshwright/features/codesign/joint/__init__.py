"""Search for a model and the accelerator that runs it, together.

In: a space of models and a template of accelerators. Out: pairs that no other dominates.
Begin reading at `command.py`, which is `meshwright codesign`.
"""

from meshwright.features.codesign.joint.search import search
from meshwright.features.codesign.joint.templates import TEMPLATES, Template

__all__ = ["TEMPLATES", "Template", "search"]
