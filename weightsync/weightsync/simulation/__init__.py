"""The swarm in virtual time: the same rules as over UCX, with up to a thousand receivers on limited links."""
