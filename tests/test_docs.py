"""The pages fit the scripts; what they show and tell to type exists, and works."""

import ast
import collections
import dataclasses
import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ppg_procgen
import ppo_procgen
from run_log import scalars
from tiny_env import TinyEnv

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LISTINGS = "ppo_procgen", "ppg_procgen"  # pages that show a script as it is
SCRIPTS = {"ppo_procgen.py": ppo_procgen, "ppg_procgen.py": ppg_procgen}
SOURCES = [
    file
    for pattern in ("*.py", "*.sh", "*.toml", "*.txt", ".ci/run", "*.md", "*.csv")
    for file in ROOT.rglob(pattern)
    if not {"_build", "_generated", "runs", ".venv"} & set(file.relative_to(ROOT).parts)
]
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])


@pytest.fixture(scope="module")
def generate():
    with pytest.MonkeyPatch.context() as patch:
        for folder in "benchmark", "docs", "docs/exercises":
            patch.syspath_prepend(str(ROOT / folder))
        import generate

        yield generate


@pytest.fixture(scope="module")
def measure():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        import measure

        yield measure


# -------------------------------------------------------------------- Code, scalars and flags


def test_every_part_can_be_generated(generate, tmp_path):
    """All hunks, sections, scalars, lines of Algorithm 1 and faults have their explanation."""
    generate.write_all(tmp_path)
    included = {
        name
        for page in PAGES
        for name in re.findall(r"\{include\} _generated/(\w+)\.inc", page.read_text())
    }
    assert included == {file.stem for file in tmp_path.iterdir()}


def test_metrics_page_has_what_a_run_logs(generate, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ppg_procgen, "make_envs", lambda args: TinyEnv(args.num_envs, args.seed))
    flags = dict(num_envs=4, num_steps=8, num_minibatches=2, n_pi=1, e_aux=1, num_test_envs=4)
    ppg_procgen.train(ppg_procgen.Args(**flags, total_timesteps=64, cuda=False))
    page = set(re.findall(r"^\| `([\w/]+)`", generate.metrics_table(), re.M))
    assert page == set(scalars(tmp_path))


def test_flags_page_has_all_flags(generate):
    head, _, *rows = (
        line.strip("| ").split(" | ") for line in generate.flags_table().splitlines()[1:]
    )
    assert head[:5] == ["flag", "default", "paper", "published code", "CleanRL"]
    page = {re.match(r"`--([\w-]+)`", row[0])[1].replace("-", "_"): row[1:] for row in rows}
    fields = {
        field.name: field.default
        for module in SCRIPTS.values()
        for field in dataclasses.fields(module.Args)
    }
    assert page.keys() == fields.keys()
    for name, default in fields.items():
        shown = re.sub("<[^>]*>", "", page[name][0])
        assert name == "exp_name" or ast.literal_eval(shown) == default, name


def test_papers_values_are_those_of_the_help(generate):
    """Of the table and of the scripts' help; and a default that is another one has its reason."""
    others, compared = set(), 0
    flags = generate.flags(generate.PPO) | generate.flags(generate.PPG)
    for name, (default, text) in flags.items():
        papers = re.search(r"paper: (\w*\.?\w+(-\d+)?)(.*)", text)
        if not papers or " with --" in papers[3]:  # of a variant
            continue
        value, default = papers[1], default.strip("'").replace("_", "")
        number = re.match(r"[.\d]", value)
        if float(default) != float(value) if number else default != value:
            others.add(name)
        table = generate.explanations.OTHER_VALUES.get(name, [""])[0].split("= ")[-1]
        if found := re.match(r"[.\d]+(e-?\d+)?", table):
            workers = 4 if " 4 workers" in table else 1
            assert workers * float(found[0]) == float(value), (name, table, text)
            compared += 1
    assert compared >= 14
    assert others == generate.explanations.WHY.keys() - {"minibatch_by"}


def included(page, script):
    """The line numbers of a script, from 0, that a page shows."""
    lines, shown = script.read_text().splitlines(), set()
    tree = {node.name: node for node in ast.parse(script.read_text()).body if hasattr(node, "name")}
    for block in re.findall(rf"\{{literalinclude\}} \.\./{script.name}\n(.*?)```", page, re.S):
        option = dict(re.findall(r":([\w-]+): *\"?(.*?)\"?$", block, re.M))
        first, last = 0, len(lines)
        if name := option.get("pyobject"):
            node = tree[name]
            first = min([node.lineno, *(x.lineno for x in node.decorator_list)]) - 1
            last = node.end_lineno
        if text := option.get("start-at"):
            first = next(i for i in range(first, last) if text in lines[i])
        if text := option.get("end-before"):
            last = next(i for i in range(first, last) if text in lines[i])
        shown |= set(range(first, last))
    return shown


def test_walk_shows_the_sections_of_the_script():
    """All of the network and the equations, the update, and the loop from the rollout on."""
    script = ROOT / "ppo_procgen.py"
    lines, shown = script.read_text().splitlines(), included((DOCS / "ppo.md").read_text(), script)
    place = {
        name: i for i, line in enumerate(lines) for name in re.findall(r"# [=-]+ ([A-Z]\w+)", line)
    }
    code = [
        i
        for i, line in enumerate(lines)
        if line.strip() and not line.startswith(("#", "OBS", "NUM"))
    ]
    for first, last in ("Network", "Training"), ("Rollout", "End"):
        missing = [lines[i] for i in code if place[first] <= i < place[last] and i not in shown]
        assert not missing
    names = [lines[i] for i in code if i in shown]
    for name in "policy_phase", "minibatches", "micro_batches", "optimizer_step":
        assert any(line.startswith(f"def {name}(") for line in names)
    for name in "Workers", "Checkpoints", "Environments", "Running":
        section = range(place[name], min(i for i in place.values() if i > place[name]))
        assert shown & set(section), name


def test_sections_are_listed(generate):
    banners = re.findall(r"^# =+ (\w+) =+$", (ROOT / "ppg_procgen.py").read_text(), re.M)
    assert re.findall(r"^\| \*(\w+)\* \|", generate.sections_table(), re.M) == banners
    for module in SCRIPTS.values():
        listed = re.search(r"Read from top to bottom: (.*?);", module.__doc__, re.S)[1]
        assert re.findall(r"\w+", listed) == banners


ROWS = {1: "aux_buffer.phases", 2: "AuxiliaryBuffer(", 3: "for iteration", 4: "args.num_steps"}
ROWS |= {5: "gae(", 6: "args.e_pi", 7: "L_policy =", 8: "args.e_v", 9: "L_value", 10: ".store("}
ROWS |= {11: "old_policy_logits(", 12: "args.e_aux", 13: "L_joint =", 14: "L_joint + "}


def test_lines_of_the_algorithm(generate):
    lines = (ROOT / "ppg_procgen.py").read_text().splitlines()
    table = generate.algorithm_table()
    link = r'<a href="ppg_procgen.html#L-(\d+)">\2</a>'
    rows = re.findall(
        rf"^\| (\d+) \| .* \| {link} \| `(.*?)` \| <code.*?>([\w. ]+)</code> \|$", table, re.M
    )
    assert [int(row[0]) for row in rows] == list(ROWS)
    for row, number, code, owner in rows:
        assert lines[int(number) - 1].strip().startswith(code.removesuffix("..."))
        assert ROWS[int(row)] in lines[int(number) - 1]
        assert owner.split(".")[0] in ("train", "policy_phase", "auxiliary_epoch")


def test_diff_walk_has_every_changed_line(generate):
    """The pieces turn PPO into PPG, but for blank lines; the numbers are those of PPG."""
    walk = html.unescape(re.sub("<[^>]*>", "", generate.diff_walk()))
    shown = re.findall(r"^ *(\d*) ([+-])(.*\S.*)$", walk, re.M)
    a, b = (script.read_text().splitlines() for script in (generate.PPO, generate.PPG))
    added, removed = (collections.Counter(x for _, s, x in shown if s == sign) for sign in "+-")
    lines, wanted = (collections.Counter(filter(str.strip, x)) for x in (a, b))
    assert not removed - lines and lines - removed + added == wanted
    for number, sign, line in shown:
        assert (b[int(number) - 1] == line) if sign == "+" else number == ""


def test_returns_in_the_readme(generate):
    """On fruitbot, over the last 100,000 steps."""
    rows = [line.strip("| ").split(" | ") for line in generate.easy_table().splitlines()]
    ends = dict(zip(rows[0], rows[-1], strict=True))
    names = "PPO", "PPO, its recipe", "train-procgen"
    ours, recipe, other = (f"{float(ends[f'fruitbot: {name}']):.1f}" for name in names)
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"to {ours} against {other} at the end" in text
    assert f"the same script and seed came to {recipe} " in text


def test_sizes_in_the_readme():
    """The README, which is not generated, names the buffer's size at the defaults and for 256."""
    args = ppg_procgen.Args()
    one = args.n_pi * args.num_steps * 64 * 64 * 3 / 1e9
    text = (ROOT / "README.md").read_text()
    assert f"{args.num_envs * one:.1f} GB" in text and f"{256 * one:.1f} GB of buffer" in text


# ------------------------------------------------------------------------- What is measured


def test_equations_are_up_to_date(measure):
    """Clipping, advantages and gradient flow, as the scripts compute them now."""
    kept = json.loads((measure.DATA / "equations.json").read_text())
    assert kept == json.loads(json.dumps(measure.equations()))


def test_faults_can_be_planted(measure):
    for fault in measure.FAULTS.values():
        module = measure.faulty_script({k: v for k, v in fault.items() if not k.isidentifier()})
        assert module.Args(**{k: v for k, v in fault.items() if k.isidentifier()})


@pytest.mark.slow
def test_faults_show_the_signs_that_the_exercise_names(generate, measure):
    """Run again, each fault of exercise 7 has its sign, and the sound run has none."""
    exercise = generate.name_the_bug
    curves = {
        name: {
            tag.split("/", 1)[1]: np.array([value for _, value in points])
            for tag, points in measure.run(name).items()
        }
        for name in ["healthy", *exercise.FAULTS]
    }
    for run in curves:
        signs = [
            fault
            for fault, (_, _, sign) in exercise.SIGNS.items()
            if sign(curves[run], curves["healthy"])
        ]
        assert signs == ([] if run == "healthy" else [run])


@pytest.mark.slow
def test_drawn_curves_are_those_of_the_faults(generate, measure):
    """Of each, the first iteration, run again; later ones differ from machine to machine."""
    drawn = generate.figures.broken_runs()
    assert drawn.keys() == measure.FAULTS.keys()
    for name in drawn:
        run = measure.run(name, total_timesteps=measure.FLAGS["total_timesteps"] // 14)
        for tag, points in run.items():
            if tag in drawn[name]:
                first = drawn[name][tag][1][0]
                assert points[0][1] == pytest.approx(first, rel=0.05, abs=2e-3), (name, tag)


# ------------------------------------------------------------- Commands, names and addresses


def commands(text):
    """The lines of fenced blocks that are commands, and inline ones."""
    fenced = re.findall(r"^(`{3,})([^\n]*)\n(.*?)^\1$", text, re.M | re.S)
    for _, language, _ in fenced:
        assert re.match(r"$|bash$|text$|bibtex$|\{", language), f"are these commands? {language}"
    blocks = [block for _, language, block in fenced if language in ("", "bash")]
    lines = [
        line if line.endswith("  # quick") else line.split("  #")[0]
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`((?:python|torchrun|benchmark/)[^`]*)`", text)
    starts = r"(\w+=\S+ )*(python |torchrun |pip |uv |tensorboard |sphinx-build |benchmark/\S+\.sh)"
    return [part for line in lines for part in line.split(" && ") if re.match(starts, part)]


def test_commands_are_found():
    """Also below a block that is not closed like it is opened, and over several lines."""
    text = "```{include} a.inc\n```\n\n"
    text += "```\npython a.py \\\n  --b 1  # quick\npip install c  # why\n```\n"
    assert commands(text) == ["python a.py    --b 1  # quick", "pip install c"]


@BY_PAGE
def test_commands_are_accepted(page, tmp_path, monkeypatch):
    """Flags by the scripts' own parsers; what is marked as quick and exercises' checks are run."""
    monkeypatch.chdir(ROOT)
    for file in ROOT.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "runs").unlink(missing_ok=True)
    for command in commands(page.read_text()):
        if command.endswith("  # quick"):
            command = command.removesuffix("  # quick")
            run = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
            assert run.returncode == 0 and "_procgen" in run.stdout, run.stderr
        words = shlex.split(command)
        script = next((word for word in words if Path(word).name in SCRIPTS), None)
        if script and words[0] != "uv":
            module, flags = SCRIPTS[Path(script).name], words[words.index(script) + 1 :]
            if "--help" in flags:
                continue
            if "--resume" in flags:  # of a run that the reader has
                flags = [flag for flag in flags if "runs/" not in flag and flag != "--resume"]
            module.check_args(module.parse_args(flags))
        for word in words:
            if re.match(r"(benchmark|docs|tests)/", word) and "_build" not in word:
                assert (ROOT / word).exists(), command
        if "docs/exercises/" in command:
            run = [sys.executable, "-m", "pytest", "-q", "-x", words[-1]]
            text = subprocess.run(run, cwd=ROOT, capture_output=True, text=True).stdout
            assert "not written yet" in text and "no tests ran" not in text


def names_in(file):
    """Identifiers of a file: of Python code its names and one-word strings, else all words."""
    text = file.read_text()
    if file.suffix != ".py":
        return set(re.findall(r"[A-Za-z_]\w*", text))
    found = set()
    for node in ast.walk(ast.parse(text)):
        fields = [getattr(node, x, None) for x in ("id", "attr", "name", "arg", "value", "module")]
        texts = [x for x in fields if isinstance(x, str) and " " not in x]
        found.update(word for x in texts for word in re.findall(r"[A-Za-z_]\w*", x))
    return found


WORDS = set().union(*(names_in(file) for file in SOURCES if file.suffix != ".md"))
ELSEWHERE = {"n_epoch_pi", "lscpu", "avx512_bf16", "amx_bf16"}
FLAGS = {
    f"--{prefix}{field.name.replace('_', '-')}"
    for module in SCRIPTS.values()
    for field in dataclasses.fields(module.Args)
    for prefix in ("", "no-")
}


def exists(name):
    """Whether a file or folder is in a fresh checkout; a built page is there if its source is."""
    if name.startswith("docs/_build/"):
        name = re.sub(r"docs/_build/(.*)\.html$", r"docs/\1.md", name)
    assert not {"_build", "_generated"} & set(Path(name).parts), name
    places = [ROOT, DOCS, DOCS / "exercises", ROOT / "benchmark", ROOT / "tests"]
    return any((place / name).exists() for place in places)


def test_what_a_build_leaves_does_not_count():
    assert exists("docs/_build/index.html") and exists("README.md")
    assert not exists("docs/_build/none.html") and not exists("docs/none.md")
    with pytest.raises(AssertionError):
        exists("docs/_generated/algorithm.md")


@BY_PAGE
def test_names_in_backticks_exist(page):
    """Every flag, file and identifier that a page names."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for code in re.findall(r"(?<!\})`([^`\n]+)`", text):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            others = "--help --dry-run --nproc-per-node --video --logdir --clip_param --kl_penalty"
            assert flag in FLAGS or flag in others.split(), f"{page.name}: {code}"
        if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.(py|sh|md|toml|txt)", code):
            if not code.startswith(("losses/", "charts/", "runs/")):
                assert exists(code), f"{page.name}: {code}"
        elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*(\(\))?", code):
            for name in re.findall(r"[A-Za-z_]\w*", code):
                assert name in WORDS | ELSEWHERE, f"{page.name}: {code}"


LESSONS = [page for page in PAGES[1:] if page.stem not in ("index", *LISTINGS)]


@pytest.mark.parametrize("page", LESSONS, ids=[page.stem for page in LESSONS])
def test_pages_of_the_course_have_their_parts(page):
    text = page.read_text()
    head = " ".join(text.split("\n\n")[1].split())
    assert re.match(r"\*You will be able to: .* (M|m)inutes.* You need: .*\*$", head), head
    assert "You should know" in text and re.search(r"^Next: ", text, re.M)
    check = text.split("## Check yourself")[1]
    assert len(re.findall(r"^:::\{dropdown\} .+\n\S", check, re.M)) >= 3


def test_course_lists_its_pages(generate):
    listed = re.findall(r"^\| \{doc\}`(\w+)`", generate.course(), re.M)
    assert sorted(listed) == [page.stem for page in LESSONS]


def test_right_answers_stand_anywhere():
    """The right option is not, more often than not, the same one of its question."""
    places = collections.Counter()
    for page in LESSONS:
        for question in page.read_text().split("## Check yourself")[1].split("?\n\n")[1:]:
            options = re.findall(r"^:::\{dropdown\} .+\n(\w+)", question, re.M)
            assert len(options) >= 3 and len(set(options)) > 1, (page.stem, question)
            places.update(i for i, word in enumerate(options) if word == "Yes")
    assert places.total() > 15 and max(places.values()) <= places.total() / 2, places


def test_tests_that_pages_name_exist():
    code = "".join(file.read_text() for file in ROOT.glob("tests/*.py"))
    tests = set(re.findall(r"def (test_\w+)", code))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert name in tests, f"{page.name}: {name}"


def test_outside_links_are_pinned():
    """Whether they can be reached: sphinx-build -b linkcheck docs docs/_build/links."""
    for page in PAGES:
        for link in re.findall(r"\]\((https?://[^)]*)\)", page.read_text()):
            assert link.startswith("https://"), link
            assert "/blob/" not in link, f"{link}: use the schemes code: and cleanrl: of conf.py"
