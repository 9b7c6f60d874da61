"""The node agent: sees from outside what the agents in the pods cannot, such as GPUs that idle or break.

It reads dcgm-exporter's page and, where there is no GPU, the pods' CPU time, and tells the operator per pod. It reports
what it sees; what that means is for the operator to judge.
"""
