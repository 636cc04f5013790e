"""Options and results of a solve, and its best solution and bound so far."""
