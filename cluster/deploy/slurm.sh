#!/usr/bin/env bash
# Runs a sweep as one Slurm job: Ray on every node of the job, the driver on the first.
#   sbatch cluster/deploy/slurm.sh SPEC.yaml [options of mislabel run]
# Near the time limit, packs save checkpoints and the job queues itself again; after a preemption Slurm does. See slurm.md.
#SBATCH --job-name=mislabel
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --mem=0
#SBATCH --time=08:00:00
# Whole nodes: `ray symmetric-run` ends with `ray stop`, which ends every Ray of yours on the node.
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=mislabel-%j.log
# Slurm signals only this script, five minutes before the limit; the script passes the signal to the driver.
#SBATCH --signal=B:USR1@300
set -euo pipefail

if [[ $# -lt 1 ]]; then
    echo "usage: sbatch slurm.sh SPEC.yaml [options of mislabel run]" >&2
    exit 2
fi
# On a file system that every node can reach.
store=${MISLABEL_STORE:-$PWD/results}
venv=${MISLABEL_VENV:-$PWD/.venv}
job=${MISLABEL_JOBS:-$HOME/.mislabel}/slurm-$SLURM_JOB_ID

# shellcheck source=/dev/null
source "$venv/bin/activate"

umask 077
rm -rf "$job"
mkdir -p "$job"
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$job/token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$job/token
# Nodes of a large job need more than the default of 30 s to come up.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
export MISLABEL_DRIVER=$job/driver

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
address=$head:6379

# The script and the driver both run on the first node, so this node knows the process id that the driver writes.
# shellcheck disable=SC2329  # called by the trap
stop_driver() {
    echo "the time limit is near: saving checkpoints" >&2
    [[ ! -s $MISLABEL_DRIVER ]] || kill -TERM "$(cat "$MISLABEL_DRIVER")" || true
}
trap stop_driver USR1

# shellcheck disable=SC2016  # expanded by the bash that becomes the driver
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "${SLURM_GPUS_ON_NODE:-0}" --disable-usage-stats -- \
    bash -c 'echo $$ > "$MISLABEL_DRIVER"; exec mislabel run "$@"' driver \
    "$1" --address "$address" --store "$store" "${@:2}" &
step=$!
code=0
wait "$step" || code=$?
# A trapped signal ends `wait` before the step has ended.
while kill -0 "$step" 2> /dev/null; do
    code=0
    wait "$step" || code=$?
done

started=false
[[ ! -s $MISLABEL_DRIVER ]] || started=true
rm -rf "$job"
if [[ $started = false ]]; then
    # symmetric-run exits with 0 if Ray did not start.
    echo "Ray did not start on the nodes of this job, so nothing was run" >&2
    exit 1
fi
if [[ $code -eq 130 ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
