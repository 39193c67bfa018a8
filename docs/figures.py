"""The drawings of the pages, as SVG that takes its text colour from the page, light or dark.

Called by conf.py through generate.py. Everything drawn comes from the scripts' flags, from
docs/data (written by measure.py), benchmark/published or benchmark/results.
"""

import csv
import html
import io
import json
import re
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import reference

DATA = Path(__file__).parent / "data"
RESULTS = Path(__file__).parents[1] / "benchmark" / "results"
# What report.py calls the run of results/train_procgen, by the flags that its patch needs.
OTHER_RECIPE = "ppo --vf-coef 0.5 --max-grad-norm 0.5"
INK = "#010203"  # becomes the page's text colour
POLICY, VALUE, AUX, BAD, GREY = "#3d85c6", "#d9822b", "#3f9d5d", "#cc4040", "#8a8a8a"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": matplotlib.cycler(color=[POLICY, VALUE, AUX, BAD, "#8e63b5", GREY]),
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
}
STYLE |= dict.fromkeys(
    ["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], INK
)
matplotlib.rcParams.update(STYLE)


def svg(figure, name, alt):
    """A closed matplotlib figure as a line of HTML: an SVG image with a text alternative."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # ids that no other figure has
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    text = re.sub(r"font: ((?:bold |italic )*)([\d.]+px) [^;\"]*", r"font: \1\2 sans-serif", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", text)  # matplotlib >= 3.11
    if "DejaVu" in text:
        raise ValueError(f"{name}: the font is not the page's")
    text = text.replace(INK, "currentColor")
    label = html.escape(alt, quote=True)
    text = text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f'<div class="drawing">{" ".join(text.split())}</div>'


def plain(axes):
    """No frame, no ticks: a drawing, not a plot."""
    axes.set_axis_off()
    return axes


def box(axes, x, y, width, height, text, colour, filled=True):
    style = "round,pad=0,rounding_size=0.08"
    patch = FancyBboxPatch((x, y), width, height, boxstyle=style, lw=1.3, ec=colour, fc="none")
    if filled:
        axes.add_patch(
            FancyBboxPatch((x, y), width, height, boxstyle=style, lw=0, fc=colour, alpha=0.2)
        )
    axes.add_patch(patch)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center")


def arrow(axes, start, end, colour, style="-|>", lw=1.4, dashed=False):
    line = "--" if dashed else "-"
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=10, lw=lw, color=colour, ls=line
        )
    )


def timeline(flags):
    """PPO and PPG over one phase: what is trained when, and how often each sample is used."""
    n_pi, e_pi, e_v = (int(flags[name]) for name in ("n_pi", "e_pi", "e_v"))
    e_aux, per_epoch = int(flags["e_aux"]), int(flags["num_minibatches"])
    epochs = int(flags["update_epochs"])
    trajectories = n_pi * int(flags["num_envs"])
    aux_steps = e_aux * -(-trajectories // int(flags["aux_minibatch_rollouts"]))
    figure, axes = plt.subplots(figsize=(7.4, 3.1))
    plain(axes).set(xlim=(0, 10), ylim=(0, 4.3))
    shown = 9
    for y, title in (3.1, "PPO"), (1.3, "PPG"):
        axes.text(0, y + 0.3, title, weight="bold", va="center")
        for i in range(shown):
            x = 0.75 + 0.6 * i
            axes.add_patch(plt.Rectangle((x, y), 0.2, 0.6, fc=GREY, alpha=0.35, lw=0))
            axes.add_patch(plt.Rectangle((x + 0.22, y), 0.28, 0.6, fc=POLICY, lw=0))
    axes.text(0.75 + 0.6 * shown, 3.4, "…  and so on", va="center")
    axes.text(0.75 + 0.6 * shown, 1.6, "…", va="center")
    axes.text(9.95, 1.05, "… and again", ha="right", va="top")
    x = 0.75 + 0.6 * shown + 0.35
    box(axes, x, 1.2, 10 - x - 0.05, 0.8, f"auxiliary phase:\n{aux_steps:,} gradient steps", AUX)
    axes.text(0.75, 3.9, "rollout", color=GREY, va="bottom")
    axes.text(1.75, 3.9, f"{epochs} epochs on policy and value: {epochs * per_epoch} steps",
              color=POLICY, va="bottom")  # fmt: skip
    both = e_pi if e_pi == e_v else e_pi + e_v
    axes.text(0.75, 2.1, f"{n_pi} times: rollout, then {both} epoch on policy and value "
              f"({both * per_epoch} steps)", color=POLICY, va="bottom")  # fmt: skip
    arrow(axes, (0.75, 1.05), (x - 0.1, 1.05), INK, "|-|", 0.8)
    axes.text(
        (0.75 + x) / 2, 0.95, "observations and value targets are kept", ha="center", va="top"
    )
    axes.text(0, 0.1, f"How often a sample trains the policy: PPO {epochs}, PPG {e_pi}.   "
              f"The value function: PPO {epochs}, PPG {e_v} + {e_aux}.")  # fmt: skip
    alt = (
        f"PPO alternates a rollout and {epochs} epochs of training policy and value. PPG does so "
        f"{n_pi} times with {e_pi} epoch, keeps observations and value targets, and then has an "
        f"auxiliary phase of {e_aux} epochs, {aux_steps:,} gradient steps, on all of them."
    )
    return svg(figure, "timeline", alt)


def networks(flags):
    """The three architectures, and which loss reaches which part, from the measured gradients."""
    reached = json.loads((DATA / "equations.json").read_text())["gradients"]
    figure, cells = plt.subplots(1, 3, figsize=(7.4, 3.6))
    titles = {"dual": "dual (default)", "shared": "shared (PPO, with V aux)", "detach": "detach"}
    for axes, (arch, title) in zip(cells, titles.items(), strict=True):
        plain(axes).set(xlim=(0, 4), ylim=(-0.5, 5.2))
        axes.text(2, 5.0, title, ha="center", weight="bold")
        two = arch == "dual"
        encoders = {"policy_encoder": 1.0 if two else 2.0} | ({"value_encoder": 3.2} if two else {})
        for name, x in encoders.items():
            label = name.replace("_", "\n") if two else "encoder"
            box(axes, x - 0.75, 0.6, 1.5, 1.0, label, POLICY if "policy" in name else VALUE)
            axes.text(x, 0.1, "image", ha="center", va="center")
            arrow(axes, (x, 0.25), (x, 0.57), GREY)
        heads = {"policy_head": ("π", 0.5, POLICY), "aux_value_head": ("V aux", 1.7, AUX)}
        heads["value_head"] = ("V", 3.2, VALUE)
        if not two:
            heads |= {"policy_head": ("π", 0.6, POLICY), "aux_value_head": ("V aux", 2.0, AUX)}
            heads["value_head"] = ("V", 3.4, VALUE)
        losses = {"policy_head": "policy", "aux_value_head": "aux", "value_head": "value"}
        for part, (label, x, colour) in heads.items():
            box(axes, x - 0.5, 3.3, 1.0, 0.7, label, colour)
            encoder = "value_encoder" if part == "value_head" and two else "policy_encoder"
            foot = encoders[encoder] + 0.35 * np.sign(x - encoders[encoder])
            trained = reached[arch][losses[part]]
            arrow(axes, (foot - 0.15, 1.65), (x - 0.15, 3.25), GREY, lw=1)
            if encoder in trained:  # the gradient flows down
                arrow(axes, (x + 0.1, 3.25), (foot + 0.1, 1.65), colour, lw=2)
            else:
                middle = (x + foot) / 2 + 0.1, 2.45
                arrow(axes, (x + 0.1, 3.25), middle, colour, style="-", lw=2)
                axes.plot(*middle, marker="x", color=BAD, ms=11, mew=3)
            words = {"policy": "L clip, S, KL", "aux": "L aux", "value": "L value"}[losses[part]]
            axes.text(x, 4.2, words,
                      ha="center", va="bottom", color=colour, fontsize=9)  # fmt: skip
    alt = (
        "Three networks with a policy head, a value head and an auxiliary value head. Dual: an "
        "encoder for policy and auxiliary value, another for the value. Shared: one encoder, all "
        "gradients reach it. Detach: one encoder; the value loss's gradient is stopped above it."
    )
    return svg(figure, "networks", alt)


def clip(flags):
    """The clipped surrogate of one state, computed by the real function."""
    data = json.loads((DATA / "equations.json").read_text())["clip"]
    figure, cells = plt.subplots(1, 2, figsize=(7.4, 2.8))
    for axes, (sign, title) in zip(
        cells, [("1", "a good action"), ("-1", "a bad action")], strict=True
    ):
        r, value, gradient = (np.array(data[sign][key]) for key in ("ratio", "value", "gradient"))
        moving = gradient != 0
        axes.plot(np.where(moving, r, np.nan), value, color=POLICY, lw=2.5, label="gradient")
        axes.plot(
            np.where(moving, np.nan, r), value, color=BAD, lw=2.5, ls=":", label="none: clipped"
        )
        for edge in 1 - data["clip_coef"], 1 + data["clip_coef"]:
            axes.axvline(edge, color=GREY, lw=0.8, ls="--")
        axes.plot(1, float(sign), "o", color=INK, ms=5)
        axes.set(
            title=f"{title}, advantage {int(sign):+d}",
            xlabel="ratio r",
            ylabel="contribution to L clip",
        )
        axes.legend()
    alt = (
        "Contribution of one state to L clip against the ratio. With a positive advantage it rises "
        "with the ratio up to 1 + epsilon and is flat from there; with a negative one it is flat "
        "below 1 - epsilon and falls with the ratio from there."
    )
    return svg(figure, "clip", alt)


def same_policy(flags):
    """What the KL holds: paths of the weights with and without it, in the smallest network."""
    data = json.loads((DATA / "equations.json").read_text())["same_policy"]
    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    feature, weight = data["0.0"]["path"][0]
    x = np.linspace(0.75, 3.4, 200)
    axes.plot(x, feature * weight / x, color=GREY, lw=6, alpha=0.35)
    axes.text(0.82, 1.92, "all of these weights\nare the same policy", color=GREY, va="center")
    axes.axvline(data["target"], color=AUX, lw=0.8, ls="--")
    axes.text(data["target"] + 0.03, 2.0, "V aux = target", color=AUX, va="center")
    words = {"0.0": ("L aux alone", BAD, (2.0, 1.58)), "1.0": ("with the KL, weight 1", POLICY,
             (2.45, 1.29)), "10.0": ("with the KL, weight 10", VALUE, (0.95, 0.78))}  # fmt: skip
    for beta, (label, colour, place) in words.items():
        path = np.array(data[beta]["path"])
        axes.plot(*path.T, color=colour, lw=2)
        axes.plot(*path[-1], "o", color=colour, ms=6)
        axes.text(*place, label, color=colour)
    axes.plot(feature, weight, "o", color=INK, ms=6)
    axes.text(feature + 0.05, weight + 0.1, "start")
    axes.set(xlabel="feature f, which is V aux, too", ylabel="policy's weight w", ylim=(0.3, 2.2))
    alt = (
        "Paths of two weights under gradient descent. The auxiliary loss alone changes the feature "
        "and leaves the curve on which the policy stays the same. With the KL term the path bends "
        "back to that curve, and ends on it, where the auxiliary value fits its target."
    )
    return svg(figure, "same_policy", alt)


def gae(flags):
    """Advantages of a small example with an end of an episode, computed by the real function."""
    data = json.loads((DATA / "equations.json").read_text())["gae"]
    steps = np.arange(len(data["rewards"]))
    figure, axes = plt.subplots(figsize=(7.4, 2.9))
    series = [("rewards", GREY), ("values", VALUE), ("advantages", POLICY), ("returns", AUX)]
    for number, (name, colour) in enumerate(series):
        label = {"rewards": "reward", "values": "value V", "returns": "value target"}.get(
            name, "advantage"
        )
        axes.bar(steps + 0.2 * (number - 1.5), data[name], 0.18, color=colour, label=label)
    for step in np.flatnonzero(data["dones"]):
        axes.axvline(step - 0.5, color=BAD, lw=1.5)
        axes.text(
            step - 0.42,
            axes.get_ylim()[1],
            "dones = 1: a new episode",
            color=BAD,
            va="top",
            fontsize=9,
        )
    axes.axhline(0, color=INK, lw=0.8)
    axes.set(xlabel=f"step t (gamma {data['gamma']}, lambda {data['gae_lambda']})", xticks=steps)
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.25))
    alt = (
        "Rewards, values, advantages and value targets of eight steps; an episode ends after the "
        "fourth. Advantages rise towards a reward; nothing crosses the end of the episode."
    )
    return svg(figure, "gae", alt)


def memory(flags):
    """Bytes of a rollout's pictures and of the auxiliary buffer."""
    one = int(flags["num_steps"]) * 64 * 64 * 3 / 1e9  # GB of an environment's rollout
    figure, axes = plt.subplots(figsize=(7.4, 2.3))
    num_envs, n_pi = int(flags["num_envs"]), int(flags["n_pi"])
    rows = [(num_envs, "rollout", 1), (num_envs, f"n_pi = {n_pi // 4}", n_pi // 4)]
    rows += [(envs, f"n_pi = {n_pi}", n_pi) for envs in (num_envs, 4 * num_envs)]
    for y, (envs, _, rollouts) in enumerate(reversed(rows)):
        size = envs * rollouts * one
        axes.barh(y, size, color=GREY if rollouts == 1 else AUX, height=0.6)
        axes.text(size + 0.3, y, f"{size:.1f} GB", va="center")
    axes.set_yticks(
        range(len(rows)), [f"{envs} environments, {what}" for envs, what, _ in reversed(rows)]
    )
    axes.set(xlabel="GB of pictures, one byte for each colour of each pixel")
    axes.set_xlim(0, 1.12 * max(envs * rollouts * one for envs, _, rollouts in rows))
    alt = "Memory of pictures: " + "; ".join(
        f"{envs} environments, {what}: {envs * rollouts * one:.1f} GB"
        for envs, what, rollouts in rows
    )
    return svg(figure, "memory", alt + ".")


def published_curves(algorithms, mode="hard"):
    """(algorithm, game) -> steps, mean, deviation; of training on all levels."""
    curves = defaultdict(list)
    for row in reference.rows("published_curves"):
        wanted = row["algorithm"] in algorithms and row["mode"] == mode
        if wanted and row["levels"] == "unlimited":
            point = [float(row[key]) for key in ("step", "return_mean", "return_std")]
            curves[row["algorithm"], row["game"]].append(point)
    return {key: np.array(points).T for key, points in curves.items()}


def draw_band(axes, curve, colour, label, style="-"):
    """A mean against steps, with the deviation between seeds around it."""
    steps, mean, deviation = curve
    axes.plot(steps / 1e6, mean, style, color=colour, lw=1.3, label=label)
    low, high = mean - deviation, mean + deviation
    axes.fill_between(steps / 1e6, low, high, color=colour, alpha=0.25, lw=0)


def published_games(flags):
    """PPO and PPG on the 16 games, as published."""
    curves = published_curves(["ppo", "ppg"])
    games = sorted({game for _, game in curves})
    figure, cells = plt.subplots(4, 4, figsize=(8.2, 7.6))
    for game, axes in zip(games, cells.flat, strict=True):
        for algorithm, colour in ("ppo", POLICY), ("ppg", AUX):
            draw_band(axes, curves[algorithm, game], colour, algorithm.upper())
        axes.set_title(game)
        axes.tick_params(labelsize=8)
    figure.supxlabel("million steps, hard levels", fontsize=10)
    figure.supylabel("return", fontsize=10)
    figure.legend(*cells[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    alt = (
        "Published returns of PPO and PPG on 16 games against steps: towards the end, PPG is above "
        "PPO in all but bossfight, where the two meet."
    )
    return svg(figure, "published_games", alt)


def published_ablations(flags):
    """Mean normalised returns of the three ablations, as published."""
    curves = defaultdict(lambda: defaultdict(list))
    for row in reference.rows("published_ablations"):
        point = float(row["step"]) / 1e6, float(row["mean_normalised_return"])
        curves[row["parameter"]][int(row["value"])].append(point)
    titles = {
        "e_pi": "policy epochs E_π",
        "e_aux": "auxiliary epochs E_aux",
        "n_pi": "iterations N_π",
    }
    figure, cells = plt.subplots(1, 3, figsize=(8.2, 3.2), sharey=True)
    for axes, (name, title) in zip(cells, titles.items(), strict=True):
        shades = plt.cm.viridis(np.linspace(0.1, 0.85, len(curves[name])))
        for (value, points), colour in zip(sorted(curves[name].items()), shades, strict=True):
            axes.plot(*np.array(points).T, color=colour, lw=1.4, label=value)
        axes.set(title=title, xlabel="million steps")
        axes.legend(ncols=2, fontsize=8)
    cells[0].set_ylabel("mean normalised return")
    alt = (
        "Published mean normalised returns against steps, one run of each. Fewer policy epochs, "
        "more auxiliary epochs and, up to 16 iterations, rarer auxiliary phases end higher."
    )
    return svg(figure, "published_ablations", alt)


def results(name):
    """(run's algorithm, game, seed) -> tag -> [(step, value), ...] of benchmark/results/name."""
    runs = defaultdict(lambda: defaultdict(list))
    with open(RESULTS / name / "curves.csv") as file:
        for row in csv.DictReader(file):
            point = int(row["step"]), float(row["value"])
            runs[row["algorithm"], row["game"], int(row["seed"])][row["tag"]].append(point)
    return runs


def our_runs(name):
    """(algorithm, game) -> [(steps, returns) of each seed] of benchmark/results/name."""
    runs = defaultdict(list)
    for (algorithm, game, _), curves in results(name).items():
        runs[algorithm, game].append(np.array(curves["episodic_return"]).T)
    return runs


def draw_ours(axes, curves, colour, label):
    """Seeds as thin lines, their mean as a thick one."""
    for steps, returns in curves:
        axes.plot(steps / 1e6, returns, color=colour, lw=0.8, alpha=0.6)
    shared = curves[0][0]
    mean = np.mean([np.interp(shared, *curve) for curve in curves], axis=0)
    seeds = "1 seed" if len(curves) == 1 else f"{len(curves)} seeds"
    axes.plot(shared / 1e6, mean, color=colour, lw=2, label=f"{label} ({seeds})")


def band(axes, game, mode, last, label):
    """The published PPO's mean and deviation between seeds, as far as `last`; and these numbers."""
    curve = published_curves(["ppo"], mode)["ppo", game]
    curve = curve[:, curve[0] <= 1.02 * last]
    draw_band(axes, curve, GREY, label, "--")
    return curve


def our_hard(flags):
    """PPO on hard starpilot beside the published band."""
    runs = our_runs("ppo_hard")
    figure, axes = plt.subplots(figsize=(7.4, 3))
    (curves,) = runs.values()
    last = curves[0][0][-1]
    draw_ours(axes, curves, POLICY, "ppo_procgen.py")
    steps, mean, deviation = band(axes, "starpilot", "hard", last, "published, 3 seeds")
    axes.set(
        title=f"PPO, starpilot, hard, {last:,.0f} steps", xlabel="million steps", ylabel="return"
    )
    axes.legend()
    at = mean[-1], deviation[-1], np.interp(steps[-1], *curves[0])
    alt = (
        f"Return of PPO on hard starpilot up to {last:,.0f} steps: ours {at[2]:.2f}, published "
        f"{at[0]:.2f} with deviation {at[1]:.2f} between seeds."
    )
    return svg(figure, "our_hard", alt)


def easy_games(runs, labels):
    """Runs on easy levels, a cell for each game; the end of each curve in words.

    `labels` gives a label and a colour to each algorithm.
    """
    games = sorted({game for _, game in runs}, reverse=True)
    figure, cells = plt.subplots(1, len(games), figsize=(7.4, 3), squeeze=False)
    said = []
    for game, axes in zip(games, cells.flat, strict=True):
        here = {algorithm: curves for (algorithm, x), curves in runs.items() if x == game}
        for algorithm, (label, colour) in labels.items():
            if algorithm in here:
                draw_ours(axes, here[algorithm], colour, label)
                final = np.mean([curve[1][-1] for curve in here[algorithm]])
                said.append(f"{game}, {label}: {final:.2f}")
        last = max(curve[0][-1] for curves in here.values() for curve in curves)
        band(axes, game, "easy", last, "train-procgen, 3 seeds")
        axes.set(title=f"{game}, easy, {last:,.0f} steps", xlabel="million steps", ylabel="return")
        axes.legend()
    return figure, "; ".join(said)


def our_easy(flags):
    """PPO and PPG with settings for a CPU."""
    labels = {"ppo": ("PPO", POLICY), "ppg-single --n-pi 8": ("PPG", AUX)}
    labels[OTHER_RECIPE] = "PPO, its recipe", VALUE
    figure, said = easy_games(our_runs("laptop") | our_runs("train_procgen"), labels)
    return svg(figure, "our_easy", f"Return at the end of a million steps: {said}.")


def our_minibatches(flags):
    """Both values of --minibatch-by."""
    labels = {"ppo": ("steps", POLICY)}
    labels |= {"ppo --minibatch-by trajectories": ("trajectories", VALUE)}
    figure, said = easy_games(our_runs("minibatch_by"), labels)
    return svg(figure, "our_minibatches", f"Return of PPO at the end by --minibatch-by: {said}.")


def broken_runs():
    """Run -> tag -> (steps, values), from measure.py."""
    runs = defaultdict(lambda: defaultdict(list))
    with open(DATA / "broken.csv") as file:
        for row in csv.DictReader(file):
            runs[row["run"]][row["tag"]].append((int(row["step"]), float(row["value"])))
    return {name: {tag: np.array(x).T for tag, x in tags.items()} for name, tags in runs.items()}


def broken(name, run, healthy, tags):
    """A broken run beside the healthy one, a cell for each of some scalars, three in a row."""
    height = -(-len(tags) // 3)
    figure, cells = plt.subplots(height, 3, figsize=(7.4, 2.1 * height), squeeze=False)
    said = []
    for axes, tag in zip(cells.flat, tags, strict=True):
        for curves, colour, style in (healthy, GREY, "--"), (run, BAD, "-"):
            if tag in curves:
                steps, values = curves[tag]
                x, ends = steps / 1000, []
                if "aux" in tag:  # against the number of the auxiliary epoch, a line per phase
                    x, ends = 1 + np.arange(len(steps)), np.flatnonzero(np.diff(steps) > 1) + 1
                for part in np.split(np.arange(len(steps)), ends):
                    axes.plot(x[part], values[part], style, color=colour, lw=1.8)
        axes.set_title(tag.split("/", 1)[1] + (", each epoch" if "aux" in tag else ""))
        axes.tick_params(labelsize=8)
        first, *_, last = run[tag][1]
        said.append(f"{tag.split('/', 1)[1]} from {first:.2g} to {last:.2g}")
    figure.supxlabel("thousand steps", fontsize=8)
    return svg(figure, f"broken {name}", f"{name}: {', '.join(said)}.")


DRAWINGS = [
    timeline,
    networks,
    clip,
    same_policy,
    gae,
    memory,
    published_games,
    published_ablations,
]
DRAWINGS += [our_hard, our_easy, our_minibatches]


def all_drawings(flags):
    """Name -> HTML of all drawings."""
    return {draw.__name__: draw(flags) for draw in DRAWINGS}
