"""The development cluster, the demo on it, and what benchmarks and end-to-end tests share."""
