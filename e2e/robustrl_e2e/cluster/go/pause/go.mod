module robustrl.dev/devcluster/pause

go 1.24.0
