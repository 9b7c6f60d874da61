"""The leased chunk swarm, as rules: who asks whom for which chunk, and whom a holder serves.

Nothing in here does I/O, reads a clock or draws from a global random source: times and `random.Random` are passed in.
The same code runs over UCX (`weightsync.source`, `weightsync.puller`), in virtual time (`weightsync.simulation`) and
under property tests.

In one paragraph: a puller asks for the rarest chunks that somebody it knows has, and names several it would take; a
holder serves as many requests at a time as it has upload slots, the puller that was served longest ago first, and
sends of the chunks named the one with the fewest copies. Every chunk is verified before it counts, and from then on
the puller serves it too. Holders tell their pullers what they have gained; a directory tells who is there.
"""
