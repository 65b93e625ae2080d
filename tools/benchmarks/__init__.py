"""vkcat side by side with other ways to run the same models: see tools/bench and docs/benchmarks.md."""
