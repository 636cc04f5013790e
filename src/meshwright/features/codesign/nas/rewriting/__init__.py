"""Models whose subgraphs are replaced by cheaper ones with the same properties.

alphaNAS: Jin, Phothilimthana, Roy, "Neural Architecture Search using Property Guided
Synthesis", OOPSLA 2022. Begin at `search.py`: parents are drawn from a population
(`lineages.py`), a subgraph is chosen (`cones.py`), its properties are mutated and a
subgraph with these is synthesised (`propose.py`), and spliced in (`replace.py`).
`network.py` is a model as a program, `task.py` trains it, `source.py` writes it as Python.
"""
