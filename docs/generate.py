"""What the documentation takes from the scripts and from results, so that it cannot drift away.

Called by conf.py. Raises an error, and so stops the build, where the prose does not fit the code
any more: a hunk of the diff or a scalar without an explanation, or an explanation too many.
"""

import ast
import difflib
import re
import statistics
from collections import defaultdict
from pathlib import Path

import explanations
import reference

ROOT = Path(__file__).parents[1]
PPO, PPG = ROOT / "ppo_procgen.py", ROOT / "ppg_procgen.py"


def flags(path):
    """Flag -> (default, help) of a script's Args, read from its source."""
    (args,) = [
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Args"
    ]
    pairs = zip(args.body, args.body[1:], strict=False)
    return {
        field.target.id: (ast.unparse(field.value), " ".join(text.value.value.split()))
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def markdown_table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(x) for x in line) + " |" for line in lines) + "\n"


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
    rows = []
    for name, (default, text) in (ppo | ppg).items():
        only = "" if name in ppo and name in ppg else f" ({'PPO' if name in ppo else 'PPG'} only)"
        published, cleanrl = known.get(name, ("", ""))
        flag = f"`--{name.replace('_', '-')}`{only}"
        rows.append([flag, f"`{default}`", published, cleanrl, text.replace("|", "\\|")])
    head = ["flag", "default", "published code", "CleanRL", "what it is"]
    return markdown_table(head, rows)


def logged_names():
    """The names of all scalars that the scripts write, from their source."""
    names = set()
    for path in PPO, PPG:
        source = path.read_text("utf-8")
        names |= set(re.findall(r'"((?:losses|charts)/\w+)"', source))
        for values in re.findall(r"add_up\(mb_metrics, share, (.*)\)$", source, re.M):
            names |= set(re.findall(r"(\w+)=", values))
    plain = {name for name in names if "/" not in name}
    aux = {name for name in plain if name in ("kl_loss", "aux_value_loss", "real_value_loss")}
    names = {name for name in names if "/" in name}
    names |= {f"losses/{name}" for name in plain - aux} | {f"losses/aux/{name}" for name in aux}
    for name in re.findall(r'"(episod\w+)"', PPO.read_text("utf-8")):
        names |= {f"charts/{name}", f"charts/test_{name}"}
    return names


def metrics_table():
    """All logged scalars; their names come from the scripts, the rest from explanations.py."""
    same_keys("METRICS", explanations.METRICS, logged_names())
    rows = []
    for name, (formula, unit, when) in explanations.METRICS.items():
        rows.append([f"`{name}`", formula, unit, when])
    return markdown_table(["scalar", "what", "unit", "when"], rows)


def owner_of(lines, number):
    """The section, class or function that a line of a script stands in."""
    for line in reversed(lines[: number + 1]):
        banner = re.match(r"# =+ (\w+) =+", line)
        name = re.match(r"(?:class|def) (\w+)", line)
        if banner or name:
            return (banner or name)[1]
    return "docstring"


def hunks():
    """[(owner, first line in PPG, diff lines)]: what turns PPO into PPG."""
    a, b = PPO.read_text("utf-8").splitlines(), PPG.read_text("utf-8").splitlines()
    result = []
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for group in matcher.get_grouped_opcodes(2):
        lines, changed = [], group[0][3]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in a[i1:i2]]
            else:
                lines += [f"-{line}" for line in a[i1:i2]] + [f"+{line}" for line in b[j1:j2]]
        first = next(j1 for tag, _, _, j1, _ in group if tag != "equal")
        added = [re.match(r"\+(?:class|def) (\w+)", line) for line in lines]
        owner = next((name[1] for name in added if name), owner_of(b, first))
        result.append((owner, changed + 1, lines))
    return result


def diff_walk():
    """The hunks in the order of reading, each under its explanation."""
    found = {}
    for owner, number, lines in hunks():
        found.setdefault(owner, []).append((number, lines))
    same_keys("HUNKS", explanations.HUNKS, found)
    text = ""
    for owner, (title, prose) in explanations.HUNKS.items():
        text += f"## {title}\n\n{prose}\n\n"
        for number, lines in found[owner]:
            caption = f"{owner}, from line {number} of ppg_procgen.py"
            body = "\n".join(lines)
            text += f"```{{code-block}} diff\n:caption: {caption}\n\n{body}\n```\n\n"
    return text


def speed_tables():
    """The tables of benchmark/results/speed.md, a heading level lower."""
    text = (ROOT / "benchmark" / "results" / "speed.md").read_text().split("\n", 2)[2]
    return text.replace("## ", "### ")


def published_results():
    """Mean normalised returns over the last 5 % of the steps, as in the authors' code."""
    scores = defaultdict(list)
    for row in reference.rows("published_final"):
        if row["mode"] == "hard":
            score = reference.normalised(float(row["return_mean"]), row["game"], "hard")
            scores[row["algorithm"].replace("-", "_")].append(score)
    values = {f"published_{name}": f"{statistics.mean(x):.3f}" for name, x in scores.items()}
    curves = defaultdict(lambda: defaultdict(list))
    for row in reference.rows("published_ablations"):
        if int(row["step"]) > 95e6:
            curves[row["parameter"]][int(row["value"])].append(float(row["mean_normalised_return"]))
    for name, by_value in curves.items():
        means = [f"{statistics.mean(by_value[value]):.3f}" for value in sorted(by_value)]
        values[f"published_{name}"] = " ".join(means)
    return values


def substitutions():
    """Names that the pages may use as {{ name }}."""
    ppo, ppg = flags(PPO), flags(PPG)
    values = {f"ppg_{name}": default for name, (default, _) in ppg.items()}
    values |= {f"ppo_{name}": default for name, (default, _) in ppo.items()}
    values |= published_results()
    n, t = int(ppg["num_envs"][0]), int(ppg["num_steps"][0])
    n_pi = int(ppg["n_pi"][0])
    values["batch_size"] = f"{n * t:,}"
    values["phase_steps"] = f"{n * t * n_pi:,}"
    values["buffer_gb"] = f"{n * t * n_pi * 64 * 64 * 3 / 1e9:.1f}"
    return values


def write_all(folder):
    """Write the generated parts that the pages include."""
    folder.mkdir(exist_ok=True)
    parts = {"flags": flags_table(), "metrics": metrics_table()}
    parts |= {"diff": diff_walk(), "speed": speed_tables()}
    for name, text in parts.items():
        (folder / f"{name}.inc").write_text(text, "utf-8")
