"""What runs reached, beside the published results: python benchmark/report.py RUNS... --out DIR

Looks below RUNS for directories of runs, of any number of games, seeds and settings. Writes to DIR:

  curves.csv        all scalars but the speed against steps, of every run
  runs.json         the flags of every run
  figures/*.png     a figure for each game, one of all games, the published ablations
  report.md, .json  final returns beside the published ones, and the means over 16 games

Final returns are means over the last 5 % of the steps; beside a published curve, over the last
tenth of the steps that both have. +- is the deviation between the 3 published seeds, a mean over
the same steps, and what is no further off is "in the band": one run outside of it says little. For
easy levels, only another recipe is published, train-procgen's PPO. Deviations divide by the number
of seeds. Steps to PPO's final return: where a running mean over a tenth of the planned steps first
reaches the one that PPO ends with.

Runs are compared only with runs and publications of the same mode and levels; runs that were to
have another number of steps or environments are another group. Unfinished runs and second runs of
a seed are left out, and named. A mean over the games is taken only if all 16 are there with
equally many seeds.
"""

import csv
import importlib
import json
import re
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
import tyro
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tqdm import tqdm

from reference import normalised
from reference import rows as published
from speed import table

GAMES = importlib.import_module("ppo_procgen").GAMES
NOT_A_RECIPE = (
    "exp_name seed cuda bf16 micro_batch_size compile track wandb_project_name wandb_entity"
)
NOT_A_RECIPE += " capture_video checkpoint_interval resume env_id num_test_envs num_threads"
NOT_A_RECIPE += (
    " num_workers total_timesteps distribution_mode num_levels start_level torch_deterministic"
)


@dataclass
class Args:
    runs: tyro.conf.Positional[list[Path]]
    """directories to look for runs in"""
    out: Path = Path("report")
    """where everything is written"""
    seed: int = 0
    """seed of the bootstrap"""


@dataclass
class Run:
    """One run: who, where, its curves {tag: (steps, values)}, its flags and its directory."""

    algorithm: str  # ppo, ppg, ppg-single, ppg-kl as published; others with their flags
    mode: str
    levels: str  # unlimited, or their number, and the first if that is not 0
    steps: int  # that were asked for
    game: str
    seed: int
    curves: dict
    flags: dict
    directory: Path = Path()

    @property
    def group(self):
        return self.algorithm, self.mode, self.levels, self.steps

    def final(self, tag="charts/episodic_return"):
        """Mean return over the last 5 % of the steps, as published."""
        steps, values = self.curves[tag]
        return values[steps > 0.95 * steps[-1]].mean()


def read_run(directory):
    """A Run. Raises ValueError, in words, if there is none."""
    try:
        flags = json.loads((directory / "args.json").read_text("utf-8"))
        script = "ppg_procgen" if "arch" in flags else "ppo_procgen"
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{directory}: cannot use args.json: {error}") from None
    defaults = asdict(importlib.import_module(script).Args())
    if strange := (flags.keys() ^ defaults.keys()) - {"resume", "num_workers"}:
        differ = ", ".join(sorted(strange))
        raise ValueError(f"{directory}: is no run of these scripts, they differ in {differ}")
    changed = {
        name: value
        for name, value in flags.items()
        if name not in NOT_A_RECIPE.split() and defaults.get(name) != value
    }
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    curves = {}
    for tag in events.Tags()["scalars"]:
        if tag.startswith(("charts/", "losses/")):
            points = events.Scalars(tag)
            curves[tag] = np.array([[p.step for p in points], [p.value for p in points]])
    if "charts/episodic_return" not in curves:
        raise ValueError(f"{directory}: no episode was logged")
    levels = str(flags["num_levels"] or "unlimited")
    if flags["num_levels"] and flags["start_level"]:
        levels += f" from {flags['start_level']}"
    name = algorithm(script, dict(changed), flags)
    what = name, flags["distribution_mode"], levels, flags["total_timesteps"]
    return Run(*what, flags["env_id"], flags["seed"], curves, flags, directory)


def algorithm(script, changed, flags):
    """The published name of a recipe; another has the flags that differ from the defaults."""
    name = script[:3]
    if changed.get("arch") == "detach":
        name += "-single"
        del changed["arch"]
    if changed.get("clip_coef") == 0 and changed.get("kl_penalty") == 1:
        name += "-kl"
        del changed["clip_coef"], changed["kl_penalty"]
    workers = flags.get("num_workers", 1)
    if flags["distribution_mode"] != "hard":
        changed |= {"num_workers": workers} if workers > 1 else {}
    else:  # published: 4 workers with 64 environments and 4 auxiliary trajectories each
        published = {"num_envs": 256 // workers, "minibatch_by": "trajectories"}
        published |= {"aux_minibatch_rollouts": 16 // workers} if script[:3] == "ppg" else {}
        for flag, value in published.items():
            changed.pop(flag, None)
            changed |= {flag: flags[flag]} if flags[flag] != value else {}
    return " ".join([name, *(f"--{flag.replace('_', '-')} {x}" for flag, x in changed.items())])


def published_curve(rows, group, game, played="train"):
    """Steps, mean and deviation between seeds; None if nothing comparable is published."""
    name, mode, levels, _ = group
    levels = f"{levels}-{played}" if levels == "200" else levels
    wanted = {"algorithm": name, "mode": mode, "levels": levels, "game": game}
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    keys = "step", "return_mean", "return_std"
    return np.array([[float(row[key]) for row in found] for key in keys]) if found else None


def published_end(steps, values, planned):
    """Mean of a published curve's last 5 %; None if it ends at other steps than were planned."""
    if abs(steps[-1] / planned - 1) > 0.05:
        return None
    return float(values[steps > 0.95 * steps[-1]].mean())


def published_mean(rows, group):
    """The published mean normalised return of a group's 16 games at its planned steps, or None."""
    name, mode, levels, planned = group
    ablation = re.fullmatch(r"ppg --([en]-(?:pi|aux)) (\d+)", name)
    if ablation and (mode, levels) == ("hard", "unlimited"):
        wanted = ablation[1].replace("-", "_"), ablation[2]
        found = published("published_ablations")
        found = [row for row in found if (row["parameter"], row["value"]) == wanted]
        keys = "step", "mean_normalised_return"
        points = np.array([[float(row[key]) for row in found] for key in keys])
        return published_end(*points, planned) if found else None
    curves = [published_curve(rows, group, game) for game in GAMES]
    if any(curve is None for curve in curves):
        return None
    ends = [published_end(*curve[:2], planned) for curve in curves]
    if None in ends:
        return None
    pairs = zip(ends, GAMES, strict=True)
    return float(np.mean([normalised(end, game, mode) for end, game in pairs]))


def by_game(runs):
    """Group -> game -> finished runs, the first of each seed; and what was left out, in words."""
    groups, left_out = defaultdict(lambda: defaultdict(list)), []
    for run in runs:
        who = f"{run.directory}: {' '.join(map(str, run.group))} {run.game} seed {run.seed}"
        others = groups[run.group][run.game] if run.group in groups else []
        if run.curves["charts/episodic_return"][0][-1] < run.steps:
            left_out.append(f"{who}: is unfinished")
        elif run.seed in [other.seed for other in others]:
            left_out.append(f"{who}: is another run of the same")
        else:
            groups[run.group][run.game].append(run)
    return groups, left_out


def mean_curve(runs):
    """Steps and mean return over seeds, as far as all of them came."""
    curves = [run.curves["charts/episodic_return"] for run in runs]
    end, start = min(c[0][-1] for c in curves), max(c[0][0] for c in curves)
    steps = curves[0][0]
    steps = steps[(steps >= start) & (steps <= end)]
    return steps, np.mean([np.interp(steps, *curve) for curve in curves], axis=0)


def final_rows(groups, rows):
    """For each game of each group: our final return, and the published one at the same step."""
    result = []
    for group, games in sorted(groups.items()):
        for game, runs in sorted(games.items()):
            steps, values = mean_curve(runs)
            finals = [run.final() for run in runs]
            row = dict(zip(("algorithm", "mode", "levels", "steps"), group, strict=True))
            row |= {"steps": f"{group[3]:,}", "game": game, "seeds": len(runs)}
            row["return"] = float(np.mean(finals))
            row["between seeds"] = float(np.std(finals)) if len(runs) > 1 else ""
            curve = published_curve(rows, group, game)
            if curve is not None and curve[0][0] <= steps[-1]:
                step = curve[0][curve[0] <= steps[-1]][-1]
                # Of the last tenth of the steps: a single point is a mean of 100 episodes only.
                at = (curve[0] > 0.9 * step) & (curve[0] <= step)
                mean, deviation = curve[1:, at].mean(axis=1)
                near = (steps > 0.9 * step) & (steps <= step)
                ours = values[near].mean() if near.any() else np.interp(step, steps, values)
                row |= {"at step": f"{int(step):,}", "ours": float(ours), "published": float(mean)}
                row |= {"+-": float(deviation)}
                row["in the band"] = "yes" if abs(ours - mean) <= deviation else "NO"
                if group[1] != "hard":
                    row["in the band"] = "another recipe"
            if all("charts/test_episodic_return" in run.curves for run in runs):
                finals = [run.final("charts/test_episodic_return") for run in runs]
                row["return on all levels"] = float(np.mean(finals))
                curve = published_curve(rows, group, game, "test") if group[2] == "200" else None
                end = None if curve is None else published_end(*curve[:2], group[3])
                row |= {} if end is None else {"published on all levels": end}
            row["steps/s"] = float(np.median([run.curves["charts/SPS"][1][-1] for run in runs]))
            result.append(row)
    return result


def iqm(*games):
    """Interquartile mean of all scores."""
    return scipy.stats.trim_mean(np.concatenate(games), 0.25)


def optimality_gap(*games):
    """How far the scores are below 1, on average."""
    return np.mean(1 - np.minimum(np.concatenate(games), 1))


def overall_mean(*games):
    return np.mean(np.concatenate(games))


def aggregates(groups, rows, seed):
    """Means over the 16 games with 95 % intervals, resampling the seeds of each game."""
    result = []
    for group, games in sorted(groups.items()):
        row = dict(zip(("algorithm", "mode", "levels", "steps"), group, strict=True))
        numbers = {len(runs) for runs in games.values()}
        if set(games) != set(GAMES) or len(numbers) != 1 or group[1] not in ("easy", "hard"):
            missing = sorted(set(GAMES) - set(games))
            row["no mean, because"] = (
                f"missing: {', '.join(missing)}"
                if missing
                else "games have unequal numbers of seeds"
            )
            result.append(row)
            continue
        finals = {game: np.array([run.final() for run in games[game]]) for game in GAMES}
        scores = [normalised(finals[game], game, group[1]) for game in GAMES]
        row["seeds"] = numbers.pop()
        if (end := published_mean(rows, group)) is not None:
            row["published mean"] = end
        statistics = {"mean": overall_mean, "IQM": iqm, "optimality gap": optimality_gap}
        for name, statistic in statistics.items():
            row[name] = float(statistic(*scores))
            if row["seeds"] > 1:
                interval = scipy.stats.bootstrap(
                    scores, statistic, vectorized=False, n_resamples=2000, method="percentile",
                    random_state=np.random.default_rng(seed),
                ).confidence_interval  # fmt: skip
                row[f"{name} 95 %"] = f"{interval.low:.3f} to {interval.high:.3f}"
        result.append(row)
    return result


def running_mean(steps, values, window):
    """Mean of the values at the steps in (s - window, s], for each step s from `window` on."""
    means = [values[(steps > s - window) & (steps <= s)].mean() for s in steps if s >= window]
    return steps[steps >= window], np.array(means)


def efficiency(groups):
    """Steps that each group needs for the final return of PPO at the same mode and levels.

    A single point, of 100 episodes, would reach it by chance, and the first ones are of the
    shortest episodes: so both are means over a tenth of the planned steps, PPO's, too.
    """
    result = []
    for (name, mode, levels, planned), games in sorted(groups.items()):
        baseline = groups.get(("ppo", mode, levels, planned), {})
        if groups.keys() <= {("ppo", mode, levels, planned)}:
            continue  # nothing to compare it with
        for game in sorted(set(games) & set(baseline)):
            goal = running_mean(*mean_curve(baseline[game]), 0.1 * planned)[1][-1]
            steps, means = running_mean(*mean_curve(games[game]), 0.1 * planned)
            reached = np.flatnonzero(means >= goal)
            row = {"algorithm": name, "mode": mode, "levels": levels, "game": game}
            row |= {"PPO's return": float(goal), "of": f"{planned:,}"}
            row["steps"] = f"{int(steps[reached[0]]):,}" if len(reached) else "not reached"
            result.append(row)
    return result


def draw_game(axes, game, groups, rows):
    """Seeds as thin lines, their mean thick; the published mean dashed in its band."""
    for number, (group, games) in enumerate(sorted(groups.items())):
        if game not in games:
            continue
        colour = f"C{number}"
        for run in games[game]:
            axes.plot(*run.curves["charts/episodic_return"], color=colour, alpha=0.4, lw=0.7)
        steps, values = mean_curve(games[game])
        name, _, levels, planned = group
        levels = "all" if levels == "unlimited" else levels
        seeds = "1 seed" if len(games[game]) == 1 else f"{len(games[game])} seeds"
        label = f"{name}, {levels} levels, {planned:,} steps ({seeds})"
        axes.plot(steps, values, color=colour, lw=1.8, label=label)
        curve = published_curve(rows, group, game)
        if curve is not None:
            x, mean, deviation = curve[:, curve[0] <= 1.05 * steps[-1]]
            source = "published" if group[1] == "hard" else "train-procgen"
            label = f"{name}, {source}, mean of 3 seeds"
            axes.plot(x, mean, "--", color=colour, lw=1.2, label=label)
            axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)
    axes.set(title=game, xlabel="steps", ylabel="return, last 100 episodes")


def draw(groups, rows, out):
    """figures/: one for each game, one grid of 16 for each mode, the published ablations."""
    out.mkdir(parents=True, exist_ok=True)
    for mode in sorted({group[1] for group in groups}):
        here = {group: games for group, games in groups.items() if group[1] == mode}
        grid, cells = plt.subplots(4, 4, figsize=(20, 16), constrained_layout=True)
        for game, cell in zip(GAMES, cells.flat, strict=True):
            draw_game(cell, game, here, rows)
            if any(game in games for games in here.values()):
                figure, axes = plt.subplots(figsize=(7, 4.5), constrained_layout=True)
                draw_game(axes, game, here, rows)
                budget = max(group[3] for group, games in here.items() if game in games)
                axes.set_title(f"{game}, {mode} levels, {budget:,} steps")
                axes.legend(fontsize=7)
                figure.savefig(out / f"{game}_{mode}.png", dpi=110)
                plt.close(figure)
        handles = {}
        for cell in cells.flat:
            handles |= dict(zip(*cell.get_legend_handles_labels()[::-1], strict=True))
        grid.suptitle(f"{mode} levels", fontsize=20)
        grid.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        grid.savefig(out / f"all_{mode}.png", dpi=80)
        plt.close(grid)
    draw_ablations(out)


def draw_ablations(out):
    """The published ablations as they are."""
    curves = defaultdict(lambda: defaultdict(list))
    for row in published("published_ablations"):
        point = float(row["step"]), float(row["mean_normalised_return"])
        curves[row["parameter"]][row["value"]].append(point)
    figure, cells = plt.subplots(1, len(curves), figsize=(18, 4.5), constrained_layout=True)
    for (parameter, values), axes in zip(curves.items(), cells, strict=True):
        for value, points in values.items():
            axes.plot(*np.array(points).T, label=value)
        axes.set(title=f"{parameter}, published, 1 run each", xlabel="steps, hard levels")
        axes.set_ylabel("mean normalised return, 16 games")
        axes.legend()
    figure.savefig(out / "published_ablations.png", dpi=80)
    plt.close(figure)


def main(args):
    directories = sorted({file.parent for root in args.runs for file in root.rglob("args.json")})
    runs, no_runs = [], []
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"report: --out {args.out}: {error.strerror}")
    for directory in tqdm(directories, desc="runs", disable=None):
        try:
            runs.append(read_run(directory))
        except ValueError as error:
            no_runs.append(str(error))
    if not runs:
        places = ", ".join(map(str, args.runs)) or "nothing: name directories of runs"
        sys.exit("\n".join([*no_runs, f"report: no run with a finished episode below {places}"]))
    (groups, left_out), rows = by_game(runs), published("published_curves")
    with open(args.out / "curves.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*[f.name for f in fields(Run)][:6], "tag", "step", "value"])
        for run in runs:
            who = [*run.group, run.game, run.seed]
            for tag in sorted(set(run.curves) - {"charts/SPS", "charts/learning_rate"}):
                for step, value in run.curves[tag].T:
                    row = [*who, tag.removeprefix("charts/"), int(step), f"{value:.7g}"]
                    writer.writerow(row)
    (args.out / "runs.json").write_text(json.dumps([run.flags for run in runs], indent=1) + "\n")
    report = {"final": final_rows(groups, rows)}
    report["over 16 games"] = aggregates(groups, rows, args.seed)
    report["steps to PPO's final return"] = efficiency(groups)
    report["left out"] = [{"run": words} for words in no_runs + left_out]
    draw(groups, rows, args.out / "figures")
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    explained = (__doc__ or "").strip().split("\n\n")[-2:]
    text = "\n\n".join(["# Report", *explained]) + "\n"
    for title, part in report.items():
        body = table(part) if part else "Nothing."
        text += f"\n## {title[0].upper()}{title[1:]}\n\n{body}\n"
    (args.out / "report.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
