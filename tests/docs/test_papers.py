"""docs/papers.md is what its script writes from its stored numbers."""

import json

from benchmarks.papers.papers import PAGE, RESULTS, page


def test_the_page_shows_the_stored_results():
    results = json.loads((RESULTS / "papers.json").read_text())
    assert page(results) == PAGE.read_text()
