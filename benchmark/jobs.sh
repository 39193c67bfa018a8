# Read by the experiments' scripts, which set EXPERIMENT and `variants`: lines of a name, a script and
# its flags. Every variant is run on every game with every seed by `run_jobs "$@"`.
#
#   benchmark/ppg_easy.sh              run what is not finished; go on with what was interrupted
#   benchmark/ppg_easy.sh --dry-run    print the commands instead
#   benchmark/ppg_easy.sh --count      print the number of jobs
#   benchmark/ppg_easy.sh --job 3      run one of them, numbered from 0
#
# Ctrl-C lets the running jobs write their checkpoints, and ends.
#
# Settings, as environment variables:
#   GAMES     names, or the 16 of Procgen        SEEDS     numbers (default: 1 2 3)
#   GPUS      numbers; one job runs on each      RUNS_DIR  where the runs go (default: runs)
#   FLAGS     more flags for every new run       PYTHON    the interpreter (default: python3)
#   WORKERS   processes of a run, which share the 256 environments of the hard levels (default: 1)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
GAMES=${GAMES:-"bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot \
heist jumper leaper maze miner ninja plunder starpilot"}
SEEDS=${SEEDS:-"1 2 3"}
GPUS=${GPUS:-}
RUNS_DIR=${RUNS_DIR:-runs}
PYTHON=${PYTHON:-python3}
case $PYTHON in
/*) ;;
*/*) PYTHON=$PWD/$PYTHON ;; # jobs run in directories of their own
esac
WORKERS=${WORKERS:-1}
# The paper's scale: 4 workers with 64 environments each, or one process with 256.
hard="--distribution-mode hard --total-timesteps 100e6 --num-envs $((256 / WORKERS))"
hard="$hard --minibatch-by trajectories"
hard_ppg="$hard --aux-minibatch-rollouts $((16 / WORKERS))"

# Variants that differ in the value of one flag: vary NAME SCRIPT FLAGS FLAG VALUES...
vary() {
    name=$1 script=$2 flags=$3 flag=$4
    shift 4
    for value; do echo "${name}_$value $script $flags $flag $value"; done
}

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

# Runs a job unless it is finished. Its status is that of the run: 130, 138 or 143 if a signal ended it.
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
        return 0
    fi
    # torchrun ends with 1 whatever ended its workers.
    if tail -n 50 "$directory/log.txt" | grep -q "stopped; to go on"; then
        [ "$status" -ge 128 ] || status=143
    fi
    echo "$directory: ended with status $status: $(tail -n 1 "$directory/log.txt")" >&2
    return "$status"
}

# Runs the jobs of one GPU (all: of a machine without), every n-th from the k-th on.
run_share() {
    [ "$1" = all ] || export CUDA_VISIBLE_DEVICES="$1"
    jobs | awk -v n="$2" -v k="$3" 'NR % n == k' | while read -r line; do
        [ ! -e "$stop" ] || break
        status=0
        run_job "$line" </dev/null || status=$?
        case $status in
        0) ;;
        130 | 138 | 143) : >"$stop" ;;
        *) echo "${line%% *}" >>"$failed" ;;
        esac
    done
}

run_jobs() {
    # With several workers, each has a share of the environments, which only `hard` sees to.
    others=$(printf '%s\n' "$variants" | grep . | grep -vc -e "$hard" || true)
    if [ "$WORKERS" != 1 ] && { [ "$others" != 0 ] || [ -n "$GPUS" ]; }; then
        echo "$0: WORKERS is for experiments on hard levels, without GPUS" >&2
        exit 2
    fi
    case ${1:-} in
    --dry-run)
        jobs | while read -r line; do
            [ ! -e "$RUNS_DIR/${line%% *}/finished" ] || continue
            # shellcheck disable=SC2086
            command=$(command_of $line)
            case $command in
            *" --resume "*) echo "cd $RUNS_DIR/${line%% *} && $command" ;;
            *) echo "$command" ;;
            esac
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
        failed=$RUNS_DIR/$EXPERIMENT/failed stop=$RUNS_DIR/$EXPERIMENT/stop
        rm -f "$stop"
        : >"$failed"
        trap '' USR1
        trap ': >"$stop"' INT                  # the running jobs have got it, too
        trap ': >"$stop"; kill -s USR1 0' TERM # sent to this shell alone
        # shellcheck disable=SC2086
        set -- ${GPUS:-all}
        share=0 shares=$#
        for gpu; do
            run_share "$gpu" "$shares" "$share" &
            share=$((share + 1))
        done
        until wait; do :; done # a signal ends `wait`, not the jobs
        if [ -s "$failed" ]; then
            echo "failed:" >&2
            cat "$failed" >&2
            exit 1
        fi
        [ ! -e "$stop" ] || { rm "$stop"; exit 130; }
        ;;
    *)
        echo "usage: $0 [--dry-run | --count | --job NUMBER]" >&2
        exit 2
        ;;
    esac
}
