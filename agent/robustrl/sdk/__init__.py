"""The training script's side: joins an epoch, leases batches, checkpoints, commits, publishes."""
