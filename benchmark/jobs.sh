# Read by the experiments' scripts, which set EXPERIMENT and `variants`: lines of a name, a script and
# its flags. Every variant is run on every game with every seed by `run_jobs "$@"`.
#
#   benchmark/ppg_easy.sh              run what is not finished; go on with what was interrupted
#   benchmark/ppg_easy.sh --dry-run    print the commands instead
#   benchmark/ppg_easy.sh --count      print the number of jobs
#   benchmark/ppg_easy.sh --job 3      run one of them, numbered from 0
#
# Settings, as environment variables:
#   GAMES     names, or the 16 of Procgen        SEEDS     numbers (default: 1 2 3)
#   GPUS      numbers; one job runs on each      RUNS_DIR  where the runs go (default: runs)
#   FLAGS     more flags for every run           PYTHON    the interpreter (default: python3)
#   WORKERS   processes of a run, by torchrun (default: as the experiment says)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
GAMES=${GAMES:-"bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot \
heist jumper leaper maze miner ninja plunder starpilot"}
SEEDS=${SEEDS:-"1 2 3"}
GPUS=${GPUS:-}
RUNS_DIR=${RUNS_DIR:-runs}
PYTHON=${PYTHON:-python3}
WORKERS=${WORKERS:-1}
# The paper's scale. One process with 256 environments stands for 4 workers with 64 each.
hard="--distribution-mode hard --total-timesteps 100e6 --num-envs 256 --minibatch-by trajectories"
hard_ppg="$hard --aux-minibatch-rollouts 16"

# One line per job: its directory, the script, its flags.
jobs() {
    for game in $GAMES; do
        for seed in $SEEDS; do
            printf '%s\n' "$variants" | while read -r name script flags; do
                [ -n "$name" ] || continue
                echo "$EXPERIMENT/$name/$game/$seed $script --env-id $game --seed $seed $flags ${FLAGS:-}"
            done
        done
    done
}

# The command of a job, given a line of `jobs`: a new run, or the rest of one.
command_of() {
    job=$1 script=$2
    shift 2
    launch=$PYTHON
    [ "$WORKERS" = 1 ] || launch="$PYTHON -m torch.distributed.run --standalone --nproc-per-node $WORKERS"
    interrupted=$(ls -td "$RUNS_DIR/$job"/runs/*/checkpoint.0.pt "$RUNS_DIR/$job"/runs/*/previous.0.pt \
        2>/dev/null | head -n 1)
    if [ -n "$interrupted" ]; then
        run=$(basename "$(dirname "$interrupted")")
        echo "$launch $root/$script --resume runs/$run"
    else
        echo "$launch $root/$script $*"
    fi
}

# Runs a job unless it is finished. Fails if it does.
run_job() {
    # shellcheck disable=SC2086 # a line of words
    set -- $1
    directory=$RUNS_DIR/$1
    [ ! -e "$directory/finished" ] || return 0
    mkdir -p "$directory"
    command=$(command_of "$@")
    echo "$directory: $command"
    status=0
    (cd "$directory" && $command >>log.txt 2>&1) || status=$?
    if [ "$status" = 0 ]; then
        touch "$directory/finished"
        rm -f "$directory"/runs/*/auxiliary_* # needed only to go on
    else
        echo "$directory: ended with status $status: $(tail -n 1 "$directory/log.txt")" >&2
    fi
    return "$status"
}

run_jobs() {
    case ${1:-} in
    --dry-run)
        jobs | while read -r line; do
            # shellcheck disable=SC2086
            command_of $line
        done
        ;;
    --count) jobs | wc -l ;;
    --job)
        trap '' USR1 TERM # Slurm sends them to this shell too; the run inside ends as it should
        line=$(jobs | sed -n "$(($2 + 1))p")
        [ -n "$line" ] || { echo "$0: there is no job $2" >&2; exit 2; }
        run_job "$line"
        ;;
    '')
        mkdir -p "$RUNS_DIR/$EXPERIMENT"
        failed=$RUNS_DIR/$EXPERIMENT/failed
        : >"$failed"
        workers=0
        for gpu in ${GPUS:-all}; do workers=$((workers + 1)); done
        worker=0
        for gpu in ${GPUS:-all}; do
            (
                [ "$gpu" = all ] || export CUDA_VISIBLE_DEVICES="$gpu"
                jobs | awk -v n="$workers" -v k="$worker" 'NR % n == k' | while read -r line; do
                    status=0
                    run_job "$line" </dev/null || status=$?
                    [ "$status" = 0 ] || echo "${line%% *}" >>"$failed"
                    [ "$status" -lt 128 ] || exit "$status" # stopped by a signal
                done
            ) &
            worker=$((worker + 1))
        done
        wait
        if [ -s "$failed" ]; then
            echo "failed:" >&2
            cat "$failed" >&2
            exit 1
        fi
        ;;
    *)
        echo "usage: $0 [--dry-run | --count | --job NUMBER]" >&2
        exit 2
        ;;
    esac
}
