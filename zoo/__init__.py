"""Models as real training programs: the workloads of tests, benchmarks and docs."""
