#!/bin/bash
# Each task of the array collects one shard. Submit the array, and a job that joins the shards when all have ended:
#
#   job=$(sbatch --parsable slurm.sh)
#   sbatch --dependency=afterok:$job --wrap 'ludus merge runs/big/shard-* --output runs/big/all'
#
# To continue shards that did not finish, submit them again: sbatch --array=3,5 slurm.sh
#SBATCH --job-name=ludus
#SBATCH --array=1-8
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120

set -euo pipefail

# The number of shards stays the same when you submit only some of them again, so it is written here: as in --array.
shards=8

# With `exec`, Slurm's SIGTERM reaches ludus, which closes its sessions. Then, or after a kill, --resume continues.
exec ludus collect mcqa \
  --model "http://model-server:8000/v1#my-model" \
  --repeats 8 \
  --shard "$SLURM_ARRAY_TASK_ID/$shards" \
  --output "runs/big/shard-$SLURM_ARRAY_TASK_ID" \
  --resume
