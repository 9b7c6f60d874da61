"""The Kubernetes body: kopf sees RLJobs, informers see pods and nodes, the brain decides, this carries out."""
