"""Experiments and speed figures, runnable one by one: ``python -m benchmarks list``."""
