"""Exit statuses by which the processes of a pod tell the agent what their end means (numbers as in sysexits.h)."""

PEER_LOST_STATUS = 75
"""A worker gave up because another rank was gone, which is a consequence of a fault and not a fault (EX_TEMPFAIL)."""
HANDED_OVER_STATUS = 76
"""A worker ended after a commit because it was asked to: others go on from there (no status of sysexits.h fits)."""
BAD_INPUT_STATUS = 78
"""What the user gave the process cannot work, and starting it again will not help (EX_CONFIG)."""
