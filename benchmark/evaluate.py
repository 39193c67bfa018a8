"""Play an agent of ppo_procgen.py or ppg_procgen.py: python benchmark/evaluate.py RUN_DIR

On its training levels and on levels it never saw, as many episodes as asked for; prints a table and
writes RUN_DIR/evaluation.json. With --video, the first game of the training levels is filmed, with
V(s) and pi(.|s) drawn beside the frames.
"""

import dataclasses
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.stats
import torch
import tyro
from tqdm import tqdm

from reference import normalisation
from speed import ROOT, table

LAST_LEVEL = 2**31 - 1
# Procgen's 15 actions: left, right, up, down and their combinations, none, and six buttons.
ACTIONS = "LD L LU D - U RD R RU d a w s q e".split()


@dataclass
class Args:
    run_dir: tyro.conf.Positional[Path]
    """directory of a run, with args.json and a checkpoint"""
    episodes: int = 100
    """episodes on each set of levels"""
    greedy: bool = False
    """take the most probable action instead of a sample of pi"""
    seed: int = 0
    """seed of the games and of the sampled actions"""
    num_envs: int = 64
    """environments stepped together, at most"""
    cuda: bool = True
    """play on the GPU, if there is one"""
    previous: bool = False
    """the checkpoint before the last"""
    video: str = ""
    """a file, .mp4 or .gif, for a film"""
    video_episodes: int = 2
    """episodes in the film"""
    out: str = ""
    """the JSON file; empty = RUN_DIR/evaluation.json"""


def load(run_dir, previous, device):
    """The script's module, the run's arguments, its agent, and the steps it was trained for."""
    try:
        flags = json.loads((run_dir / "args.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"evaluate: {run_dir} is no directory of a run: {error}")
    sys.path.insert(0, str(ROOT))
    module = importlib.import_module("ppg_procgen" if "arch" in flags else "ppo_procgen")
    try:
        flags.pop("num_workers", None)
        args = module.Args(**flags)
        file = module.checkpoint_files(run_dir)[1]
        state = module.read_checkpoint(file) if previous else module.last_checkpoint(run_dir)
    except (TypeError, AttributeError, module.UsageError) as error:
        sys.exit(f"evaluate: {error}")
    architecture = [args.arch] if "arch" in flags else []
    agent = module.Agent(*architecture, args.bf16)
    agent.load_state_dict(state["agent"])
    return module, args, agent.to(device, memory_format=torch.channels_last), state["global_step"]


def level_sets(args):
    """Name -> flags of the levels: those trained on, and those after them."""
    if args.distribution_mode == "exploration" or not args.num_levels:
        return {"all levels": {}}
    end = args.start_level + args.num_levels
    unseen = dict(start_level=end, num_levels=LAST_LEVEL - end)
    return {"training levels": {}, "unseen levels": unseen}


def play(module, args, agent, options, device, film=None):
    """Return, length and level completion of each of options.episodes episodes.

    Each environment plays its share of them, however long they last: the first to end in all
    environments would be the short ones.
    """
    num_envs = min(options.num_envs, options.episodes)
    args = dataclasses.replace(args, num_envs=num_envs, seed=options.seed)
    envs, generator = module.make_envs(args), torch.Generator(device).manual_seed(options.seed)
    left = np.full(num_envs, options.episodes // num_envs)
    left[: options.episodes % num_envs] += 1
    running, results = np.zeros((num_envs, 2)), []
    with tqdm(total=options.episodes, unit=" episodes", disable=None) as bar:
        while left.any():
            obs = torch.from_numpy(envs.observe()[1]["rgb"].copy()).to(device)
            with torch.no_grad():
                logits, values = agent(obs)
            action = module.sample(logits, generator).squeeze(1)
            if options.greedy:
                action = logits.argmax(1)
            if film is not None:
                film(obs[0], values[0], logits[0].softmax(0), action[0])
            envs.act(action.cpu().numpy())
            reward, _, first = envs.observe()
            running += np.stack([reward, np.ones_like(reward)], axis=1)
            completed = [info["prev_level_complete"] for info in envs.get_info()]
            for n in np.flatnonzero(first):
                if left[n]:
                    results.append((*running[n], completed[n]))
                    left[n] -= 1
                    bar.update()
            if film is not None and first[0]:
                film.end_episode()
            running[first] = 0
    envs.close()
    return np.array(results, dtype=float)


def summary(levels, results, limits, seed):
    """A row of the table."""
    returns, lengths, completed = results.T
    low = high = returns.mean()
    if returns.std() > 0:
        random = np.random.default_rng(seed)
        interval = scipy.stats.bootstrap(
            (returns,), np.mean, method="percentile", batch=100, random_state=random
        )
        low, high = interval.confidence_interval
    row = {"levels": levels, "episodes": len(results), "mean return": float(returns.mean())}
    row |= {"95 % from": float(low), "to": float(high), "median": float(np.median(returns))}
    row |= {"length": float(lengths.mean()), "completed": float(completed.mean())}
    if limits:
        row["normalised"] = float((returns.mean() - limits[0]) / (limits[1] - limits[0]))
    return row


class Film:
    """Frames of an agent's games: the image, the curve of V(s), bars of pi(.|s), the action."""

    def __init__(self, file, episodes):
        import imageio
        from PIL import Image, ImageDraw

        self.image, self.draw, self.episodes_left, self.values = Image, ImageDraw.Draw, episodes, []
        if file.endswith(".mp4"):
            self.file = imageio.v3.imopen(file, "w", plugin="pyav")
            self.file.init_video_stream("libx264", fps=15)
            self.write = self.file.write_frame
        else:
            self.file = imageio.get_writer(file, duration=1000 / 15)
            self.write = self.file.append_data

    def __call__(self, obs, value, probabilities, action):
        self.values.append(float(value))
        frame = self.image.new("RGB", (640, 384), "white")
        frame.paste(self.image.fromarray(obs.cpu().numpy()).resize((384, 384), 0), (0, 0))
        draw = self.draw(frame)
        draw.text((396, 8), f"V(s) = {self.values[-1]:.2f}    step {len(self.values)}", "black")
        curve, low = self.values[-230:], min(self.values[-230:])
        scale = 110 / max(1e-6, max(curve) - low)
        points = [(400 + x, 150 - scale * (v - low)) for x, v in enumerate(curve)]
        draw.line([*points, points[-1]], fill="#1f77b4", width=2)
        draw.text((396, 172), "pi(a|s)", "black")
        for a, p in enumerate(probabilities.tolist()):
            left, colour = 400 + 15 * a, "#d62728" if a == int(action) else "#1f77b4"
            draw.rectangle((left, 350 - 150 * p, left + 11, 350), fill=colour)
            draw.text((left + 2, 356), ACTIONS[a], "black")
        self.write(np.asarray(frame))

    def end_episode(self):
        self.episodes_left -= 1
        self.values = []
        if not self.episodes_left:
            self.file.close()


def main(options):
    if options.episodes < 1 or options.num_envs < 1 or options.video_episodes < 1:
        sys.exit("evaluate: --episodes, --num-envs and --video-episodes must be at least 1")
    if options.video and not options.video.endswith((".mp4", ".gif")):
        sys.exit(f"evaluate: --video {options.video}: the name must end with .mp4 or .gif")
    if options.seed < 0:
        sys.exit(f"evaluate: --seed {options.seed}: must not be negative")
    for file in options.out, options.video:
        if file and not Path(file).absolute().parent.is_dir():
            sys.exit(f"evaluate: {file}: its directory is not there")
    device = torch.device("cuda" if options.cuda and torch.cuda.is_available() else "cpu")
    module, args, agent, step = load(options.run_dir, options.previous, device)
    limits, rows = normalisation(args.env_id, args.distribution_mode), []
    for name, levels in level_sets(args).items():
        args_here = dataclasses.replace(args, **levels)
        results = play(module, args_here, agent, options, device)
        rows.append(summary(name, results, limits, options.seed))
    if options.video:
        film = Film(options.video, options.video_episodes)
        alone = dataclasses.replace(options, num_envs=1, episodes=options.video_episodes)
        play(module, args, agent, alone, device, film)
    report = {"env_id": args.env_id, "distribution_mode": args.distribution_mode}
    report |= {"global_step": step, "greedy": options.greedy, "seed": options.seed, "levels": rows}
    report["normalisation"] = {
        "min, max": limits,
        "from": "benchmark/published/normalisation.csv",
    }
    out = Path(options.out or options.run_dir / "evaluation.json")
    out.write_text(json.dumps(report, indent=2) + "\n")
    how = "greedy" if options.greedy else "sampled"
    print(f"{args.env_id}, {args.distribution_mode}, {how} actions, after {step:,} steps\n")
    print(table(rows))
    if limits:
        print(f"\nnormalised: {limits[0]} is 0 and {limits[1]} is 1, as in the authors' code")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
