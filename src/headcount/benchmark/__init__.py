"""Benchmark: the speed of headcount beside other trainers and translators."""
