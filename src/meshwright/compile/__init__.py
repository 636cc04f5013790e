"""Below a plan: choices otherwise left to the compiler, and models for other runtimes."""
