"""Docstrings in the form that Markdown needs, as an extension of Griffe."""

from __future__ import annotations

from typing import Any

import griffe

from tools.pages import entry_list


class EntryLists(griffe.Extension):
    """Lists in place of paragraphs of entries, in every docstring that is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(map(entry_list, paragraphs))
