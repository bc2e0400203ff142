#!/bin/bash
#SBATCH --job-name=labeldeconv-hops
#SBATCH --nodes=16 --ntasks-per-node=1 --cpus-per-task=16 --mem=64G --time=08:00:00
#SBATCH --requeue
# Hop labels by a Spark cluster that lives as long as this job. Nodes, edges and out lie on a file system that all machines see:
#
#   sbatch slurm-hops.sh /shared/nodes.parquet /shared/edges.parquet /shared/K --hops 4
#
# Every machine needs Java 17 and the same Python with labeldeconv[spark]. A job that is ended and submitted again goes on
# behind its last complete hop.
set -euo pipefail
nodes=$1 edges=$2 out=$3
shift 3

SPARK_HOME=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
PYSPARK_PYTHON=$(command -v python)
export SPARK_HOME PYSPARK_PYTHON SPARK_LOCAL_DIRS=${SPARK_LOCAL_DIRS:-${TMPDIR:-/tmp}}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
master=spark://$head:${SPARK_PORT:-7077}
cores=${SLURM_CPUS_PER_TASK:-1}
memory=$((SLURM_MEM_PER_NODE / 4))m # of Java; Python's workers hold the blocks and take the rest

"$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
  --host "$head" --port "${SPARK_PORT:-7077}" --webui-port 0 &
running=($!)
srun --overlap "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
  --cores "$cores" --memory "$memory" --webui-port 0 "$master" &
running+=($!)
trap 'kill "${running[@]}" 2>/dev/null || true' EXIT

labeldeconv hops --engine spark --master "$master" --nodes "$nodes" --edges "$edges" --out "$out" \
  --executor-memory "$memory" --spark spark.default.parallelism=$((SLURM_NNODES * cores)) "$@"
