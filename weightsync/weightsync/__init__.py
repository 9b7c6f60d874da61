"""Versioned weights for many replicas while machines die: exact to the bit, never torn, from any neighbour.

A publisher seals a version into a `Manifest`: chunks with digests, one root digest over all. Whoever holds verified
bytes of that version serves them (`Source`); whoever needs it pulls chunks from any holder (`pull`), checks every one
and goes on with another holder when one fails. The library knows bytes, versions and addresses; it knows nothing of
Kubernetes or of any RL framework.
"""

from weightsync.manifest import BadManifest, Chunk, Manifest, Tensor
from weightsync.peers import Peers
from weightsync.puller import Holding, Incomplete, PullStats, fetch_manifest, pull
from weightsync.source import Source
from weightsync.swarm.peer import Peer
from weightsync.transport import Address

__all__ = [
    "Address",
    "BadManifest",
    "Chunk",
    "Holding",
    "Incomplete",
    "Manifest",
    "Peer",
    "Peers",
    "PullStats",
    "Source",
    "Tensor",
    "fetch_manifest",
    "pull",
]
