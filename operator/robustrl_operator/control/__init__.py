"""What every live body shares: the control endpoint that agents call, and the level-triggered reconcile loop."""
