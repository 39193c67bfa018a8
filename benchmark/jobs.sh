# Read by the experiments' scripts, which set EXPERIMENT and `variants`: lines of a name, a script and
# its flags. Every variant is run on every game with every seed by `run_jobs "$@"`.
#
#   benchmark/ppg_easy.sh              run what is not finished; go on with what was interrupted
#   benchmark/ppg_easy.sh --dry-run    print the commands instead
#   benchmark/ppg_easy.sh --count      print the number of jobs
#   benchmark/ppg_easy.sh --job 3      run one of them, numbered from 0
#
# Ctrl-C or SIGTERM lets the running jobs write their checkpoints, and ends. One start at a time: two in
# the same RUNS_DIR would run the same jobs.
#
# Settings, as environment variables:
#   GAMES     names, or the 16 of Procgen        SEEDS     numbers (default: 1 2 3)
#   GPUS      numbers; one job runs on each      RUNS_DIR  where the runs go (default: runs)
#   VARIANTS  names, or all of the experiment    PYTHON    the interpreter (default: python3)
#   FLAGS     more flags for every run, after the experiment's own, which they override
#   WORKERS   processes of a run, which share the 256 environments of the hard levels: 1, 2, 4, 8 or 16
set -eu
root=$(cd -P "$(dirname "$0")/.." && pwd)
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
case $WORKERS in
1 | 2 | 4 | 8 | 16) ;;
*) echo "$0: WORKERS=$WORKERS: must be 1, 2, 4, 8 or 16" >&2; exit 2 ;;
esac
case $root in
*[[:space:]]*) echo "$0: $root: the scripts cannot run from a path with a space in it" >&2; exit 2 ;;
esac
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
                case " ${VARIANTS:-$name} " in *" $name "*) ;; *) continue ;; esac
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

# The run's processes that listen to signals. Under torchrun these are the workers: what torchrun itself
# is told it passes on, but then it waits for 30 s only.
listeners() {
    if [ "$WORKERS" = 1 ]; then
        echo "$run"
    else
        ps -A -o pid= -o ppid= | awk -v parent="$run" '$2 == parent { print $1 }'
    fi
}

# Whether the run has written this to its log, which may begin with what an earlier one wrote.
said() {
    tail -c "+$((logged + 1))" "$directory/log.txt" | grep -q "$1"
}

# Asks the run to end, and again after 5 s if it has not heard it: it does not listen while it still
# imports its packages. Once it has, it must not get a second signal, which would end it at once.
ask_to_end() {
    asking=
    if ! said "the run ends after"; then
        # shellcheck disable=SC2046 # a list of numbers
        if [ -z "$run" ] || kill -s USR1 $(listeners) 2>/dev/null; then ask_later; fi
    fi
}

ask_later() {
    if [ -z "$asking" ]; then
        asking=yes
        (sleep 5; kill -s USR2 "$me") >/dev/null 2>&1 &
    fi
}

# Whether a status is that of a run which a signal has asked to end. (Its number depends on the system.)
interrupted() {
    [ "$1" -gt 128 ] || return 1
    case $(kill -l "$1") in INT | TERM | USR1) ;; *) return 1 ;; esac
}

# Runs a job unless it is finished. Its status is that of the run.
run_job() {
    # shellcheck disable=SC2086 # a line of words
    set -- $1
    directory=$RUNS_DIR/$1
    mkdir -p "$directory" && : >>"$directory/log.txt" || return 1
    flags=$(shift; echo "$*")
    if [ -e "$directory/runs" ] && [ -e "$directory/flags" ] && [ "$flags" != "$(cat "$directory/flags")" ]
    then
        echo "$directory: was begun with other flags: $(cat "$directory/flags"); use another RUNS_DIR" >&2
        return 1
    fi
    echo "$flags" >"$directory/flags"
    [ ! -e "$directory/finished" ] || { echo "$directory: finished"; return 0; }
    command=$(command_of "$@")
    echo "$directory: $command"
    logged=$(wc -c <"$directory/log.txt")
    me=$(exec sh -c 'echo "$PPID"') run= asking=
    # shellcheck disable=SC2086
    trap ask_later $signals # the run may have got the signal, too
    trap ask_to_end USR2
    (
        [ "$WORKERS" = 1 ] || trap '' USR1 # it would kill torchrun
        # shellcheck disable=SC2086
        cd "$directory" && exec $command >>log.txt 2>&1
    ) &
    run=$! status=0
    wait "$run" || status=$?
    while kill -0 "$run" 2>/dev/null; do # a signal has ended `wait`, not the run
        status=0
        wait "$run" || status=$?
    done
    if [ "$status" = 0 ]; then
        touch "$directory/finished"
        rm -f "$directory"/runs/*/auxiliary_* # needed only to go on
        return 0
    fi
    # torchrun ends with 1 whatever ended its workers: 143 is SIGTERM's.
    if [ "$WORKERS" != 1 ] && said "stopped; "; then
        status=143
    fi
    echo "$directory: ended with status $status: $(tail -n 1 "$directory/log.txt")" >&2
    return "$status"
}

# Runs the jobs of one GPU (all: of a machine without), every n-th from the k-th on.
run_share() {
    [ "$1" = all ] || export CUDA_VISIBLE_DEVICES="$1"
    trap '' INT USR1 # one signal only, from the shell below that waits for all shares
    signals=TERM
    while read -r line <&3; do
        [ ! -e "$stop" ] || break
        status=0
        run_job "$line" </dev/null 3<&- || status=$?
        [ "$status" != 0 ] || continue
        if interrupted "$status"; then : >"$stop"; else echo "${line%% *}" >>"$failed"; fi
    done 3<<EOF
$(jobs | awk -v n="$2" -v k="$3" 'NR % n == k')
EOF
}

run_jobs() {
    # With several workers, each has a share of the environments, which only `hard` sees to.
    others=$(printf '%s\n' "$variants" | grep . | grep -vc -e "$hard" || true)
    if [ "$WORKERS" != 1 ] && { [ "$others" != 0 ] || [ -n "$GPUS" ]; }; then
        echo "$0: WORKERS is for experiments on hard levels; the setting GPUS must then be empty" >&2
        exit 2
    fi
    count=$(jobs | wc -l)
    [ "$count" -gt 0 ] || { echo "$0: no jobs: GAMES or SEEDS is empty, or VARIANTS names none" >&2; exit 2; }
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
    --count) echo "$count" ;;
    --job)
        case ${2:-none} in
        *[!0-9]*) echo "$0: --job ${2:-}: must be a number" >&2; exit 2 ;;
        esac
        line=$(jobs | sed -n "$(($2 + 1))p")
        [ -n "$line" ] || { echo "$0: there is no job $2, the last is $((count - 1))" >&2; exit 2; }
        status=0 signals="INT TERM USR1"
        run_job "$line" || status=$?
        exit "$status"
        ;;
    '')
        mkdir -p "$RUNS_DIR/$EXPERIMENT"
        failed=$RUNS_DIR/$EXPERIMENT/failed stop=$RUNS_DIR/$EXPERIMENT/stop shares=
        rm -f "$stop"
        : >"$failed"
        trap ': >"$stop"; kill -s TERM $shares 2>/dev/null' INT TERM USR1
        # shellcheck disable=SC2086
        set -- ${GPUS:-all}
        number=0
        for gpu; do
            run_share "$gpu" "$#" "$number" &
            shares="$shares $!"
            number=$((number + 1))
        done
        for share in $shares; do
            while kill -0 "$share" 2>/dev/null; do # a signal ends `wait`, not the jobs
                wait "$share" || :
            done
        done
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
