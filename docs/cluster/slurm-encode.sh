#!/bin/bash
#SBATCH --job-name=labeldeconv-encode
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 --cpus-per-task=8 --mem=32G --time=24:00:00
#SBATCH --array=0-63 --requeue
# X of a table of texts whose Parquet files lie in one folder, a GPU a file: task k takes the k-th, (k + 64)-th ... file.
#
#   sbatch slurm-encode.sh /shared/texts /shared/runs/NAME /shared/X
#
# Rows of every part are in the order of its own ids; a task that is ended and started again goes on.
set -euo pipefail
texts=$1 run=$2 out=$3
shift 3

number=0
for file in "$texts"/*.parquet; do
  if ((number++ % ${SLURM_ARRAY_TASK_COUNT:-1} == ${SLURM_ARRAY_TASK_ID:-0})); then
    labeldeconv encode --run "$run" --texts "$file" --out "$out/$(basename "$file" .parquet)" "$@"
  fi
done
