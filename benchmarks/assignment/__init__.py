"""Integer programs that choose shardings: bounds, and solvers on contest instances."""
