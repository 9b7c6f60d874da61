"""A small rollout engine that speaks the part of SGLang's HTTP surface that reinforcement learning uses.

It serves any ``nn.Module`` that maps token ids ``[B, T]`` to logits ``[B, T, V]`` and is causal, so that jobs
which learn on a CPU run the same way, and fail the same way, as jobs with a real engine: same names, same
answers, same traps (a hung scheduler behind a green ``/ready``, a health check that costs a generation, a
throughput gauge that lies between two log lines).
"""
