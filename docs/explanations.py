"""Prose for what generate.py finds in the scripts. It complains if something is missing here."""

# Flag -> (the published code's value, CleanRL's value), where they have one.
OTHER_VALUES = {
    "num_envs": ("64 in each of 4 workers", "64"),
    "num_steps": ("256", "256"),
    "total_timesteps": ("100e6", "25e6"),
    "distribution_mode": ("hard", "easy"),
    "learning_rate": ("5e-4", "5e-4"),
    "anneal_lr": ("no", "no"),
    "gamma": (".999", ".999"),
    "gae_lambda": (".95", ".95"),
    "num_minibatches": ("8", "8"),
    "minibatch_by": ("trajectories", "steps"),
    "clip_coef": (".2", ".2"),
    "ent_coef": (".01", ".01"),
    "vf_coef": (".5, of (V - V_targ)^2", ".5, of 1/2 (V - V_targ)^2"),
    "vf_true_weight": ("1", "1"),
    "kl_penalty": ("0; 1 in the KL variant", "none"),
    "max_grad_norm": ("none", ".5"),
    "update_epochs": ("3", "3"),
    "n_pi": ("32", "32"),
    "e_pi": ("1", "1"),
    "e_v": ("1", "1, no other is allowed"),
    "e_aux": ("6", "6"),
    "beta_clone": ("1", "1"),
    "arch": ("dual; detach for a single network", "detach"),
    "aux_minibatch_rollouts": ("4 in each of 4 workers", "4"),
    "aux_learning_rate": ("5e-4", "as the policy's"),
}

# Scalar -> (what it is, unit, when).
METRICS = {
    "charts/episodic_return": (
        "mean of the undiscounted return over the last 100 episodes that ended",
        "reward of the game",
        "each iteration, once an episode has ended",
    ),
    "charts/episodic_length": ("mean length of the same episodes", "steps", "with it"),
    "charts/episodes": ("episodes that have ended so far", "episodes", "each iteration"),
    "charts/test_episodic_return": (
        "the same on all levels, without training on them",
        "reward of the game",
        "with `--num-test-envs`",
    ),
    "charts/test_episodic_length": ("the same", "steps", "with `--num-test-envs`"),
    "charts/test_episodes": ("the same", "episodes", "with `--num-test-envs`"),
    "charts/SPS": (
        "environment steps since this process started, divided by the seconds since then",
        "steps per second",
        "each iteration",
    ),
    "charts/learning_rate": ("Adam's step size in the policy phase", "1", "each iteration"),
    "losses/policy_loss": (r"$-L^{clip}$", "1", "each iteration, mean over its gradient steps"),
    "losses/value_loss": (
        r"$L^{value} = \frac12 E[(V - \hat V^{targ})^2]$, without its weight; also of policy epochs, if $E_\pi \ne E_V$",
        "squared normalized return",
        "the same",
    ),
    "losses/entropy": (r"$S[\pi]$", "nats; $\\ln 15 = 2.71$ is uniform", "the same"),
    "losses/approx_kl": (r"$E[r - 1 - \ln r]$, an estimate of the KL", "nats", "the same"),
    "losses/old_approx_kl": (r"$E[-\ln r]$, another one", "nats", "the same"),
    "losses/clipfrac": (
        r"share of states with $\lvert r - 1 \rvert > \epsilon$; 1 or nearly with `--clip-coef 0`",
        "1",
        "the same",
    ),
    "losses/explained_variance": (
        r"$1 - Var[\hat V^{targ} - V] / Var[\hat V^{targ}]$ of the values before the update",
        "1",
        "each iteration",
    ),
    "losses/aux/aux_value_loss": (
        r"$L^{aux} = \frac12 E[(V_{aux} - \hat V^{targ})^2]$",
        "squared normalized return",
        "each auxiliary epoch, mean over its gradient steps; at the step of the phase plus the epoch's number",
    ),
    "losses/aux/real_value_loss": (
        r"$\frac12 E[(V - \hat V^{targ})^2]$",
        "squared normalized return",
        "the same",
    ),
    "losses/aux/kl_loss": (r"$KL[\pi_{old}, \pi]$, without its weight", "nats", "the same"),
}

# Where a hunk of `diff ppo_procgen.py ppg_procgen.py` stands -> (title, prose), in reading order.
HUNKS = {
    "Args": (
        "New knobs",
        "PPO has one number of epochs. PPG has three: for the policy, for the value function, and for "
        "the auxiliary phase. That is the point of the method: the policy may not be trained long on "
        "the same samples, the value function may.",
    ),
    "Agent": (
        "A second encoder, a third head",
        "The auxiliary value head reads the **policy's** encoder. Its output is never used to act or "
        "to estimate advantages: it exists so that its gradient shapes the features. With `detach`, "
        "`x.detach()` stops the gradient of the true value head.",
    ),
    "kl_estimate": (
        "Two divergences",
        "`kl_estimate` needs only the probability of the action that was taken; it is the penalty of "
        "the KL variant. `kl_divergence` sums over all actions: the auxiliary phase stores the whole "
        "old distribution. Mind the order: the **old** policy comes first.",
    ),
    "AuxiliaryBuffer": (
        "A memory of a whole phase",
        "Observations and value targets of the last N_pi rollouts. No actions, no rewards: the "
        "auxiliary phase needs neither. The rest of the class keeps the buffer in files, so that a "
        "run that was killed finds it again; on a first reading, skip to `store`.",
    ),
    "policy_phase": (
        "The policy phase",
        "If policy and value have equally many epochs, one optimizer follows the sum of both losses, "
        "as in PPO. If not, each gets its own pass over the data and its own optimizer.",
    ),
    "old_policy_logits": (
        "The auxiliary phase",
        "First the old policy is written down, once, for all stored states. Then every epoch visits "
        "every stored trajectory. `L_joint` trains the policy's encoder to predict value targets while "
        "the KL holds the policy where it was; `L_value` uses the occasion to train the value "
        "function some more.",
    ),
    "train": (
        "The loop",
        "Three optimizers instead of one, a plan that counts auxiliary phases, and the phase itself at "
        "the start of the iteration after N_pi others. So none comes after the last iteration, and a "
        "checkpoint can fall between a policy phase and its auxiliary phase.",
    ),
    "docstring": ("The first lines", "Only the name changes."),
}
