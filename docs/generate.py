"""What the documentation takes from the scripts and from results, so that it cannot drift away.

Called by conf.py. Raises an error, and so stops the build, where the prose does not fit the code
any more: a hunk of the diff or a scalar without an explanation, or an explanation too many.
"""

import ast
import difflib
import html
import importlib
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer, PythonLexer

import explanations
import figures
import reference

name_the_bug = importlib.import_module("07_name_the_bug")

ROOT = Path(__file__).parents[1]
PPO, PPG = ROOT / "ppo_procgen.py", ROOT / "ppg_procgen.py"


def choices(field):
    """The values that a field of Args may have, in words, if they are listed."""
    found = re.fullmatch(r"Literal\[(.*)\]", ast.unparse(field.annotation))
    return f"{found[1].replace(chr(39), '`')}: " if found else ""


def flags(path):
    """Flag -> (default, help) of a script's Args, read from its source."""
    (args,) = [
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Args"
    ]
    pairs = zip(args.body, args.body[1:], strict=False)
    return {
        field.target.id: (
            ast.unparse(field.value),
            choices(field) + " ".join(text.value.value.split()),
        )
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def line_link(path, number, text=None):
    """A link to a line of a script, on the page that has it as a whole."""
    return f'<a href="{path.stem}.html#L-{number}">{text or number}</a>'


def whole_script(path):
    """A script with an anchor at each line."""
    formatter = HtmlFormatter(linenos="inline", linespans="L", wrapcode=True)
    code = highlight(path.read_text("utf-8"), PythonLexer(), formatter)
    return raw_html(f'<div class="highlight-python notranslate">{code}</div>')


def markdown_table(head, rows, wide=False):
    """A table; a wide one scrolls on a small screen, instead of being squeezed."""
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join("| " + " | ".join(str(x) for x in line) + " |" for line in lines) + "\n"
    return "{.wide}\n" + text if wide else text


def same_keys(what, explained, found):
    """Raise unless every thing that was found is explained, and nothing else."""
    missing, extra = sorted(set(found) - set(explained)), sorted(set(explained) - set(found))
    if missing or extra:
        raise ValueError(
            f"docs/explanations.py, {what}: missing {missing}, not in the code {extra}"
        )


def flags_table():
    """All flags of both scripts."""
    ppo, ppg = flags(PPO), flags(PPG)
    known = explanations.OTHER_VALUES
    same_keys("OTHER_VALUES", known, known.keys() & (ppo | ppg).keys())
    same_keys("WHY", explanations.WHY, explanations.WHY.keys() & known.keys())
    rows = []
    for name, (default, text) in (ppo | ppg).items():
        only = "" if name in ppo and name in ppg else f" ({'PPO' if name in ppo else 'PPG'} only)"
        paper, published, cleanrl = known.get(name, ("", "", ""))
        flag = f"`--{name.replace('_', '-')}`{only}"
        text = text.replace("|", "\\|") + (
            f". *Not the paper's:* {explanations.WHY[name]}" if name in explanations.WHY else ""
        )
        shown = f'<code class="docutils literal whole">{html.escape(default, quote=False)}</code>'
        rows.append([flag, shown, paper, published, cleanrl, text])
    head = ["flag", "default", "paper", "published code", "CleanRL", "what it is"]
    return markdown_table(head, rows, wide=True)


def logged_names():
    """The names of all scalars that the scripts write, from their source."""
    names = set()
    for path in PPO, PPG:
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and re.fullmatch(
                r"(losses|charts)/\w+", str(node.value)
            ):
                names.add(node.value)
        for function in filter(lambda node: isinstance(node, ast.FunctionDef), ast.walk(tree)):
            prefix = "losses/aux/" if function.name == "auxiliary_epoch" else "losses/"
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            for call in calls:
                if ast.unparse(call.func) == "add_up":
                    names |= {prefix + keyword.arg for keyword in call.keywords}
        (episodes,) = (node for node in tree.body if getattr(node, "name", "") == "Episodes")
        for name in re.findall(r"'(episod\w+)'", ast.unparse(episodes)):
            names |= {f"charts/{name}", f"charts/test_{name}"}
    return names


def line_of(scalar):
    """Where ppg_procgen.py gives a scalar its value: the last line that names it, from 1."""
    name = scalar.rsplit("/", 1)[1].removeprefix("test_")
    names = re.compile(rf'"(losses|charts)/{name}"|add_up.*\b{name}=|scalars.*"{name}"')
    source = PPG.read_text("utf-8").splitlines()
    return max(i for i, line in enumerate(source, 1) if names.search(line))


def metrics_table():
    """All logged scalars; their names come from the scripts, the rest from explanations.py."""
    same_keys("METRICS", explanations.METRICS, logged_names())
    rows = []
    for name, (formula, unit, when) in explanations.METRICS.items():
        rows.append([f"`{name}`", formula, unit, when, line_link(PPG, line_of(name))])
    return markdown_table(["scalar", "what", "unit", "when", "line of PPG"], rows, wide=True)


def owner_of(lines, number):
    """What a line of a script stands in: a section, class.method, function or section of train."""
    inner = {"class": "", "def": ""}  # where a line stands in a class, or in a function
    for line in reversed(lines[: number + 1]):
        banner, name = re.match(r"# =+ (\w+) =+", line), re.match(r"(class|def) (\w+)", line)
        method = re.match(r"    def (\w+)", line)
        part = re.match(r" +# -{20,} ([\w ]+)", line)
        if banner:
            return banner[1]
        if name:
            return name[2] + inner[name[1]]
        inner["class"] = inner["class"] or (f".{method[1]}" if method else "")
        inner["def"] = inner["def"] or (f".{part[1]}" if part else "")
    return "docstring"


def hunks():
    """Owner -> [[(sign, line's number in PPG, line), ...], ...]: what turns PPO into PPG.

    Every group of changes has two lines around it, and is cut where a function or class begins.
    """
    a, b = PPO.read_text("utf-8").splitlines(), PPG.read_text("utf-8").splitlines()
    result = defaultdict(list)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for group in matcher.get_grouped_opcodes(2):
        pieces = [[]]
        for tag, i1, i2, j1, j2 in group:
            if tag != "equal":
                pieces[-1] += [("-", j1, line) for line in a[i1:i2]]
            for j in range(j1, j2):
                starts = re.match(r"(@|class |def )|    (@|def )", b[j])
                if tag != "equal" and starts and not re.match(r" *@", b[j - 1]):
                    pieces.append([])
                pieces[-1].append((" " if tag == "equal" else "+", j, b[j]))
        for piece in pieces:
            changed = [j for sign, j, line in piece if sign != " " and line]
            if changed:
                last_decorator = next(j for j in range(changed[0], len(b)) if "@" not in b[j][:6])
                result[owner_of(b, last_decorator)].append(piece)
    return result


def diff_block(owner, piece):
    """A piece of the difference as HTML, with the line numbers of ppg_procgen.py."""
    filled = [i for i, (_, _, line) in enumerate(piece) if line]
    piece = piece[filled[0] : filled[-1] + 1]  # no blank ends
    text = "\n".join(sign + line for sign, _, line in piece)
    shown = highlight(text, DiffLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    rows = ""
    for (sign, j, _), line in zip(piece, shown, strict=True):
        number = (
            " " * 4 if sign == "-" else f"{j + 1:>4}".replace(str(j + 1), line_link(PPG, j + 1))
        )
        rows += f'<span class="linenos">{number} </span>{line}\n'
    return raw_html(
        f'<div class="literal-block-wrapper docutils"><div class="code-block-caption">{owner}</div>'
        f'<div class="highlight-diff notranslate"><div class="highlight"><pre>\n{rows}</pre></div>'
        "</div></div>"
    )


def diff_walk():
    """The pieces in the order of reading, each under its explanation."""
    found, text = hunks(), ""
    explained = [owner for _, owners, _ in explanations.HUNKS for owner in owners]
    same_keys("HUNKS", explained, found)
    for title, owners, prose in explanations.HUNKS:
        blocks = "\n".join(diff_block(x, piece) for x in owners for piece in found[x])
        if title.startswith("Skip: "):
            title, blocks = title[6:], f":::{{dropdown}} The code\n{blocks}\n:::\n"
        text += f"## {title}\n\n{prose}\n\n{blocks}\n"
    return text


def algorithm_table():
    """The lines of the paper's Algorithm 1, each with the line of code that does it."""
    source = PPG.read_text("utf-8").splitlines()
    rows = []
    for number, (step, code) in enumerate(explanations.ALGORITHM, 1):
        found = [i for i, line in enumerate(source, 1) if line.strip() == code]
        if len(found) != 1:
            raise ValueError(f"docs/explanations.py, ALGORITHM: {code!r} stands on lines {found}")
        shown = code if len(code) < 60 else code[:57] + "..."
        owner = owner_of(source, found[0] - 1)
        rows.append(
            [
                number,
                step,
                line_link(PPG, found[0]),
                f"`{shown}`",
                f'<code class="docutils literal whole">{owner}</code>',
            ]
        )
    return markdown_table(
        ["row", "Algorithm 1", "line", "of `ppg_procgen.py`", "in"], rows, wide=True
    )


def sections_table():
    """The banners of the scripts, with what stands under them."""
    ppo = re.findall(r"^# =+ (\w+) =+$", PPO.read_text("utf-8"), re.M)
    if ppo != re.findall(r"^# =+ (\w+) =+$", PPG.read_text("utf-8"), re.M):
        raise ValueError("the two scripts have different sections")
    same_keys("SECTIONS", explanations.SECTIONS, ppo)
    rows, source = [], PPO.read_text("utf-8").splitlines()
    names = defaultdict(list)
    for i, line in enumerate(source):
        if found := re.match(r"(?:class|def) (\w+)", line):
            banner = next(x for x in reversed(source[:i]) if re.match(r"# =+ \w+ =+$", x))
            link = line_link(PPO, i + 1, f"<code>{found[1]}</code>")
            names[banner.split()[2]].append(link)
    for name in ppo:
        held = ", ".join(names[name])
        rows.append([f"*{name}*", explanations.SECTIONS[name], held])
    return markdown_table(["section", "what it is for", "what stands in it"], rows)


def gradients_table():
    """Which loss reaches which part of the network, as measure.py found it."""
    reached = json.loads((figures.DATA / "equations.json").read_text())["gradients"]
    losses = {
        "policy": (r"$L^{clip}$", "policy"),
        "entropy": (r"$S[\pi]$", "policy"),
        "aux": ("$L^{aux}$", "auxiliary"),
        "kl": ("KL", "auxiliary"),
        "value": ("$L^{value}$", "both"),
    }
    rows = []
    for loss, (symbol, phase) in losses.items():
        parts = [", ".join(reached[arch][loss]).replace("_", " ") for arch in reached]
        rows.append([symbol, phase, *parts])
    return markdown_table(["loss", "phase", *reached], rows)


def course():
    """The pages in their order, with what each promises at its top, and how long it takes."""
    docs, rows = ROOT / "docs", []
    (pages,) = re.findall(r"```\{toctree\}\n.*?\n\n(.*?)```", (docs / "index.md").read_text(), re.S)
    for name in pages.split():
        head = " ".join((docs / f"{name}.md").read_text("utf-8").split("\n\n")[1].split())
        promise = r"\*You will be able to: (.*?)\. ([^.]*? minutes[^.]*)\. You need: "
        if found := re.match(promise, head):
            rows.append([f"{{doc}}`{name}`", found[1], found[2][0].lower() + found[2][1:]])
    return markdown_table(["page", "afterwards you can", "it takes"], rows)


def tests_table():
    """The files of tests, with the first line of what they say about themselves."""
    rows = [
        [f"`tests/{file.name}`", ast.get_docstring(ast.parse(file.read_text())).split("\n")[0]]
        for file in sorted((ROOT / "tests").glob("test_*.py"))
    ]
    return markdown_table(["tests", "what they hold"], rows)


def gae_table():
    """The example of the drawing, by hand: the steps in the order of the loop, from the last."""
    data = json.loads((figures.DATA / "equations.json").read_text())["gae"]
    gamma, decay = data["gamma"], data["gamma"] * data["gae_lambda"]
    next_value, next_done, next_advantage, rows = data["next_value"], 0, 0.0, []
    for t in reversed(range(len(data["rewards"]))):
        reward, value, not_done = data["rewards"][t], data["values"][t], 1 - next_done
        delta = reward + gamma * not_done * next_value - value
        advantage = data["advantages"][t]
        if abs(delta + decay * not_done * next_advantage - advantage) > 1e-5:
            raise ValueError("the table of advantages is not what gae() computes")
        rows.append([
            t, reward, value, next_value, not_done, f"{delta:.2f}",
            f"{delta:.2f} + {decay:.2f} · {not_done} · {next_advantage:.3f} = **{advantage:.3f}**",
            f"{data['returns'][t]:.3f}",
        ])  # fmt: skip
        next_value, next_done, next_advantage = value, data["dones"][t], advantage
    delta = r"$\delta_t$"
    head = ["t", "reward", "$V$", "next $V$", "`not_done`", delta, r"$\hat A_t$", "target"]
    return markdown_table(head, rows)


def clip_walk_table():
    """Some steps of gradient ascent on the clipped surrogate."""
    data = json.loads((figures.DATA / "equations.json").read_text())["clip_walk"]
    rows = [[i, *(f"{x:.3g}" for x in row)] for i, row in enumerate(data["rows"])]
    return markdown_table(
        ["step", "z", "ratio of the good action", "of the bad one", "gradient of z"], rows
    )


def ledger():
    """What each loss trains in one phase, how often it uses a sample, in how many steps."""
    args = {name: default for name, (default, _) in flags(PPG).items()}
    n_pi, e_pi, e_v, e_aux = (int(args[name]) for name in ("n_pi", "e_pi", "e_v", "e_aux"))
    trajectories, held = n_pi * int(args["num_envs"]), int(args["aux_minibatch_rollouts"])
    if e_pi != e_v:
        raise ValueError("the ledger is for one optimizer of the policy phase")
    policy = n_pi * e_pi * int(args["num_minibatches"])
    aux = e_aux * -(-trajectories // held)
    states = held * int(args["num_steps"])
    reached = json.loads((figures.DATA / "equations.json").read_text())["gradients"]
    trains = {
        loss: ", ".join(parts).replace("_", " ")
        for loss, parts in reached[args["arch"][1:-1]].items()
    }
    if trains["policy"] != trains["entropy"]:
        raise ValueError("the ledger has one row for the clipped surrogate and the entropy")
    rows = [
        ["$L^{clip}$, $S$", trains["policy"], e_pi, f"{policy:,}"],
        ["$L^{value}$", trains["value"], f"{e_v} + {e_aux}", f"{policy:,} + {aux:,}"],
        ["$L^{aux}$", trains["aux"], e_aux, f"{aux:,}"],
        ["KL", trains["kl"], e_aux, "the same"],
    ]
    head = ["loss", "trains", "times that it uses a sample", "gradient steps in a phase"]
    return markdown_table(head, rows) + (
        f"\nA phase has {n_pi} · {args['num_envs']} = {trajectories:,} trajectories; {held} of "
        f"them, {states:,} states, are an auxiliary minibatch. So an epoch has {trajectories:,} / "
        f"{held} = {aux // e_aux:,} gradient steps, and {e_aux} epochs have {aux:,}.\n"
    )


def games_sheet():
    """The 16 games with their names."""
    images = "".join(
        f'<figure><img src="_static/games/{file.stem}.png" alt="{file.stem}" width="128" '
        f'height="128" loading="lazy"><figcaption>{file.stem}</figcaption></figure>'
        for file in sorted((ROOT / "docs" / "static" / "games").glob("*.png"))
    )
    return raw_html(f'<div class="games">{images}</div>')


def raw_html(text):
    return f"```{{raw}} html\n{text}\n```\n"


def speed_tables():
    """The tables of benchmark/results/speed.md, a heading level lower."""
    text = (ROOT / "benchmark" / "results" / "speed.md").read_text().split("\n", 2)[2]
    return text.replace("## ", "### ")


def published_results():
    """Mean normalised returns over the last 5 % of the steps, as in the authors' code."""
    scores = defaultdict(list)
    games = defaultdict(dict)
    for row in reference.rows("published_final"):
        if row["mode"] == "hard":
            score = reference.normalised(float(row["return_mean"]), row["game"], "hard")
            scores[row["algorithm"].replace("-", "_")].append(score)
            games[row["game"]][row["algorithm"]] = score
    if not all(game["ppg"] > game["ppo"] for game in games.values()):
        raise ValueError("docs/experiments.md says that PPG is above PPO in all games")
    values = {f"published_{name}": f"{statistics.mean(x):.3f}" for name, x in scores.items()}
    values["ppg_above_ppo"] = len(games)
    curves = defaultdict(lambda: defaultdict(list))
    for row in reference.rows("published_ablations"):
        if int(row["step"]) > 95e6:
            curves[row["parameter"]][int(row["value"])].append(float(row["mean_normalised_return"]))
    for name, by_value in curves.items():
        means = [f"{statistics.mean(by_value[value]):.3f}" for value in sorted(by_value)]
        values[f"published_{name}"] = " ".join(means)
        values |= {f"published_{name}_{x}": m for x, m in zip(sorted(by_value), means, strict=True)}
    defaults = [float(values[f"published_{x}"]) for x in ("e_pi_1", "e_aux_6", "n_pi_32")]
    values["default_runs_differ"] = f"{max(defaults) - min(defaults):.2f}"
    return values


def final_return(run):
    """Mean over the last 5 % of the steps, as published."""
    points = run["episodic_return"]
    return statistics.mean(value for step, value in points if step > 0.95 * points[-1][0])


def start_page():
    """Time and return of the first look, and what is published for the others."""
    speed = json.loads((ROOT / "benchmark" / "results" / "speed.json").read_text())
    row = next(row for row in speed["comparison"] if row["program"] == "ours, bf16")
    runs = [
        run
        for (algorithm, game, _), run in figures.results("minibatch_by").items()
        if (algorithm, game) == ("ppo", "starpilot")
    ]
    finals = [final_return(run) for run in runs]
    published = next(
        row["return_mean"]
        for row in reference.rows("published_final")
        if (row["mode"], row["algorithm"], row["game"]) == ("easy", "ppo", "starpilot")
    )
    steps = runs[0]["episodic_return"][-1][0]
    (longer,) = (
        run
        for (algorithm, game, _), run in figures.results("laptop").items()
        if (algorithm, game) == ("ppo", "starpilot")
    )
    return {
        "longer_look": f"{final_return(longer):.1f}",
        "longer_look_steps": f"{longer['episodic_return'][-1][0]:,}",
        "laptop_sps": f"{row['steps/s']:.0f}",
        "laptop_minutes": f"{steps / row['steps/s'] / 60:.0f}",
        "first_look": " and ".join(f"{x:.1f}" for x in finals),
        "first_look_steps": f"{steps:,}",
        "random_starpilot": f"{statistics.mean(r['episodic_return'][0][1] for r in runs):.1f}",
        "easy_starpilot": f"{float(published):.1f}",
        "perfect_starpilot": f"{reference.normalisation('starpilot', 'easy')[1]:.0f}",
    }


def curve_ranges():
    """Tag -> (mean of the first values, 5 % and 95 % of all later ones) in our runs on Procgen."""
    first, later = defaultdict(list), defaultdict(list)
    for folder in sorted(figures.RESULTS.glob("*/curves.csv")):
        if folder.parent.name == "train_procgen":  # other losses
            continue
        for run in figures.results(folder.parent.name).values():
            for tag, points in run.items():
                first[tag].append(points[0][1])
                later[tag] += [value for _, value in points[1:]]
    return {
        tag: (statistics.mean(first[tag]), *np.quantile(later[tag], [0.05, 0.95])) for tag in first
    }


def curves_table():
    """For every scalar: its start, its range in our runs, what is wrong if it is not so."""
    same_keys("CURVES", explanations.CURVES, logged_names())
    ranges, rows = curve_ranges(), []
    for name, (start, failure, look) in explanations.CURVES.items():
        seen = "differs by game, flags or machine"
        if name in ranges:
            mean, low, high = ranges[name]
            seen = f"{mean:.2g}, then {low:.2g} to {high:.2g}"
        rows.append([f"`{name.removeprefix('losses/')}`", start, seen, failure, look])
    head = [
        "`losses/`, or `charts/`",
        "must start at",
        "in our runs",
        "a bad sign",
        "look first at",
    ]
    return markdown_table(head, rows, wide=True)


def fingerprints():
    """Some numbers of the broken runs that are shown by name, beside the healthy one."""
    runs = figures.broken_runs()
    columns = {
        "entropy, first": ("losses/entropy", lambda x: x[0]),
        "largest `approx_kl`": ("losses/approx_kl", max),
        "largest `value_loss`": ("losses/value_loss", max),
        "`explained_variance`, median": ("losses/explained_variance", statistics.median),
        "largest `aux/kl_loss`": ("losses/aux/kl_loss", max),
        "return, last": ("charts/episodic_return", lambda x: x[-1]),
    }
    rows = [
        [name, *(f"{summary(list(runs[name][tag][1])):.2g}" for tag, summary in columns.values())]
        for name in ["healthy", *explanations.BROKEN]
    ]
    return markdown_table(["run", *columns], rows)


def broken_walk():
    """The runs with a known fault, each beside the healthy one, with its explanation."""
    runs = figures.broken_runs()
    shown = runs.keys() - {"healthy", *name_the_bug.FAULTS}
    same_keys("BROKEN", explanations.BROKEN, shown)
    text = ""
    for name, (tags, prose) in explanations.BROKEN.items():
        drawing = figures.broken(name, runs[name], runs["healthy"], tags)
        text += f"### {name[0].upper()}{name[1:]}\n\n{prose}\n\n{raw_html(drawing)}\n"
    return text


def bugs():
    """The runs of exercise 7, without saying what is wrong with them."""
    runs, text = figures.broken_runs(), ""
    tags = ["charts/episodic_return", "losses/entropy", "losses/approx_kl", "losses/value_loss"]
    tags += ["losses/explained_variance", "losses/aux/kl_loss"]
    for letter, fault in sorted(name_the_bug.letters().items()):
        drawing = figures.broken(f"Run {letter}", runs[fault], runs["healthy"], tags)
        text += f"**Run {letter}**\n\n{raw_html(drawing)}\n"
    return text


def hard_table():
    """PPO on hard starpilot at about half a million, one and two million steps, and published.

    Also the number of points in the published band, and of all that can be compared.
    """
    (run,) = figures.results("ppo_hard").values()
    ours = dict(run["episodic_return"])
    steps, *published = figures.published_curves(["ppo"])["ppo", "starpilot"]
    published = {int(step): x for step, *x in zip(steps, *published, strict=True)}
    rows = []
    for step in 524_288, 983_040, 2_031_616:
        near = [x for x in ours if abs(x - step) <= 2 * 65_536]
        mean, deviation = np.mean([published[x] for x in near], axis=0)
        row = [f"{step:,}", f"{ours[step]:.2f}", "{:.2f} ± {:.2f}".format(*published[step])]
        row += [f"{np.mean([ours[x] for x in near]):.2f}", f"{mean:.2f} ± {deviation:.2f}"]
        rows.append(row)
    head = ["step", "ours", "published", "ours, 5 points", "published, 5 points"]
    inside = [abs(ours[x] - published[x][0]) <= published[x][1] for x in ours if x in published]
    return markdown_table(head, rows), sum(inside), len(inside)


def easy_table():
    """Our runs on easy levels at equal steps: means over the 100,000 steps before."""
    runs = figures.results("laptop") | figures.results("train_procgen")
    runs = {key[:2]: run for key, run in runs.items()}
    last = min(run["episodic_return"][-1][0] for run in runs.values())
    guide = figures.published_curves(["ppo"], "easy")
    names = {"ppo": "PPO", "ppg-single --n-pi 8": "PPG", figures.OTHER_RECIPE: "PPO, its recipe"}
    curves = {}
    for game in "starpilot", "fruitbot":
        for algorithm, name in names.items():
            if (algorithm, game) in runs:
                points = runs[algorithm, game]["episodic_return"]
                curves[f"{game}: {name}"] = np.array(points).T
        curves[f"{game}: train-procgen"] = guide["ppo", game][:2]
    rows = []
    for part in 0.25, 0.5, 0.75, 1:
        end = part * last
        means = [x[1][(x[0] > end - 1e5) & (x[0] <= end)].mean() for x in curves.values()]
        rows.append([f"{end:,.0f}", *(f"{mean:.2f}" for mean in means)])
    return markdown_table(["step", *curves], rows)


def worked_examples():
    """Numbers of measure.py's examples."""
    data = json.loads((figures.DATA / "equations.json").read_text())
    values = {f"example_{name}": x for name, x in data["kl"].items()}
    example = data["gae"]
    last = example["dones"].index(1) - 1  # the last step of the episode that ends
    surprise = example["rewards"][last] - example["values"][last]
    surprise += example["gamma"] * example["values"][last + 1]
    later = example["gamma"] * example["gae_lambda"] * example["advantages"][last + 1]
    epsilon, paths = data["clip_walk"]["clip_coef"], data["same_policy"]
    return values | {
        "gae_leak": f"{surprise + later:.3f}",  # the advantage if the end were ignored
        "walk_step_size": data["clip_walk"]["step_size"],
        "walk_low": 1 - epsilon,
        "walk_high": 1 + epsilon,
        "drift_without_kl": paths["0.0"]["kl"],
        "detour_1": paths["1.0"]["detour"],
        "detour_10": paths["10.0"]["detour"],
    }


def sizes():
    """What follows from the defaults of ppg_procgen.py."""
    names = "num_envs num_steps n_pi num_minibatches e_v e_aux total_timesteps".split()
    defaults = flags(PPG)
    n, t, n_pi, count, e_v, e_aux, total = (int(defaults[name][0]) for name in names)
    micro = re.search(r"small = (\d+) if args.bf16 else (\d+)", PPO.read_text("utf-8"))
    return {
        "batch_size": f"{n * t:,}",
        "phase_steps": f"{n * t * n_pi:,}",
        "total_timesteps": f"{total:,}",
        "buffer_gb": f"{n * t * n_pi * 64 * 64 * 3 / 1e9:.1f}",
        "minibatch_trajectories": n // count,
        "minibatch_states": f"{n * t // count:,}",
        "ppg_uses": e_v + e_aux,
        "micro_bf16": micro[1],
        "micro_float32": micro[2],
    }


def our_runs():
    """Numbers of the runs in benchmark/results."""
    workers = json.loads((ROOT / "benchmark" / "results" / "workers.json").read_text())
    one, two = workers["steps/s of one"], workers["steps/s of two"]
    _, inside, points = hard_table()
    runs = figures.results("laptop").items()
    ((name, laptop),) = ((key[0], run) for key, run in runs if key[0].startswith("ppg"))
    steps = laptop["episodic_return"][-1][0]
    return {
        "one_worker_sps": one,
        "two_workers_sps": two,
        "two_workers_times": f"{two / one:.2f}",
        "hard_in_band": inside,
        "hard_points": points,
        "laptop_n_pi": name.split("--n-pi ")[1],
        "laptop_phases": len(laptop["losses/aux/kl_loss"]) // int(flags(PPG)["e_aux"][0]),
        "laptop_share": round(int(flags(PPG)["total_timesteps"][0]) / steps),
    }


def substitutions():
    """Names that the pages may use as {{ name }}."""
    values = {
        f"{path.stem[:3]}_{name}": default.strip("'")
        for path in (PPG, PPO)
        for name, (default, _) in flags(path).items()
    }
    exercises = (ROOT / "docs" / "exercises.md").read_text("utf-8")
    minutes = re.findall(r"^::::\{exercise\} .*, (\d+) minutes: ", exercises, re.M)
    values["exercise_minutes"] = sum(map(int, minutes))
    return values | published_results() | start_page() | worked_examples() | sizes() | our_runs()


def write_all(folder):
    """Write the generated parts that the pages include."""
    folder.mkdir(exist_ok=True)
    parts = {
        "algorithm": algorithm_table(),
        "broken": broken_walk(),
        "bugs": bugs(),
        "clip_walk": clip_walk_table(),
        "course": course(),
        "curves": curves_table(),
        "diff": diff_walk(),
        "easy": easy_table(),
        "fingerprints": fingerprints(),
        "flags": flags_table(),
        "gae_table": gae_table(),
        "games": games_sheet(),
        "gradients": gradients_table(),
        "hard": hard_table()[0],
        "ledger": ledger(),
        "metrics": metrics_table(),
        "sections": sections_table(),
        "speed": speed_tables(),
        "tests": tests_table(),
    }
    parts |= {f"{path.stem}_lines": whole_script(path) for path in (PPO, PPG)}
    defaults = {name: default for name, (default, _) in (flags(PPO) | flags(PPG)).items()}
    parts |= {name: raw_html(text) for name, text in figures.all_drawings(defaults).items()}
    for name, text in parts.items():
        (folder / f"{name}.inc").write_text(text, "utf-8")
