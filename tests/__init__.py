"""Tests and benchmarks. A regular package, since installed packages sometimes ship a `tests` of their own."""
