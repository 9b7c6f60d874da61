"""What a run looked like: samples over time, a table, a picture."""
