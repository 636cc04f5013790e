"""Options and results of a solve, and the best solution and bound so far."""
