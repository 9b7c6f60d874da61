"""A job under a storm of random faults, and the proof that it did not matter."""
