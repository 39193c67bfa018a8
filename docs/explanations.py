"""Prose for what generate.py finds in the scripts. It complains if something is missing here."""

# Flag -> (the paper's symbol and value, the published code's value, CleanRL's), where they have one.
OTHER_VALUES = {
    "num_envs": ("$N$ = 64 in each of 4 workers", "64 in each of 4 workers", "64"),
    "num_steps": ("$T$ = 256", "256", "256"),
    "total_timesteps": ("100e6", "100e6", "25e6"),
    "distribution_mode": ("hard", "hard", "easy"),
    "learning_rate": ("5e-4", "5e-4", "5e-4"),
    "anneal_lr": ("not said", "no", "no"),
    "gamma": (r"$\gamma$ = .999", ".999", ".999"),
    "gae_lambda": (r"$\lambda$ = .95", ".95", ".95"),
    "num_minibatches": ("8", "8", "8"),
    "minibatch_by": ("not said", "trajectories", "steps"),
    "clip_coef": (r"$\epsilon$ = .2", ".2", ".2"),
    "ent_coef": (r"$\beta_S$ = .01", ".01", ".01"),
    "vf_coef": ("1, of 1/2 (V - V_targ)^2", ".5, of (V - V_targ)^2", ".5, of 1/2 (V - V_targ)^2"),
    "vf_true_weight": ("1", "1", "1"),
    "kl_penalty": (r"$\beta_\pi$: 0; 1 in 3.5", "0; 1 in the KL variant", "none"),
    "max_grad_norm": ("not said", "none", ".5"),
    "update_epochs": ("3 for PPO (its $E$)", "3", "3"),
    "n_pi": (r"$N_\pi$ = 32", "32", "32"),
    "e_pi": (r"$E_\pi$ = 1", "1", "1"),
    "e_v": ("$E_V$ = 1", "1", "1, no other is allowed"),
    "e_aux": ("$E_{aux}$ = 6", "6", "6"),
    "beta_clone": (r"$\beta_{clone}$ = 1", "1", "1"),
    "arch": ("two networks; one in 3.6", "dual; detach for a single network", "detach"),
    "aux_minibatch_rollouts": (
        r"16 minibatches per epoch and $N_\pi$",
        "4 in each of 4 workers",
        "4",
    ),
    "aux_learning_rate": ("5e-4", "5e-4", "as the policy's"),
}

# Flag -> why its default is not the paper's.
WHY = {
    "num_envs": "one process by default; `torchrun --nproc-per-node 4` has the paper's four.",
    "total_timesteps": "what one GPU can do, and usual for easy levels.",
    "distribution_mode": "easy levels need fewer steps.",
    "minibatch_by": "a minibatch of 64 environments would hold the steps of only 8, which resemble each other ({doc}`experiments`).",
    "aux_minibatch_rollouts": "per worker, as in the published code.",
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

# A title, where the pieces of `diff ppo_procgen.py ppg_procgen.py` stand that belong to it, and
# prose, in reading order. The code under a title that begins with "Skip: " is folded away.
HUNKS = [
    (
        "New knobs",
        ["Args"],
        "PPO has one number of epochs. PPG has three: for the policy, for the value function, and for "
        "the auxiliary phase. That is the point of the method: the policy may not be trained long on "
        "the same samples, the value function may.",
    ),
    (
        "A second encoder, a third head",
        ["Agent", "Agent.__init__", "Agent.with_aux_value"],
        "The auxiliary value head reads the **policy's** encoder. Its output is never used to act or "
        "to estimate advantages: it exists so that its gradient shapes the features. With `detach`, "
        "`x.detach()` stops the gradient of the value head V.",
    ),
    (
        "Two divergences",
        ["kl_estimate", "kl_divergence"],
        "`kl_estimate` needs only the probability of the action that was taken; it is the penalty of "
        "the KL variant. `kl_divergence` sums over all actions: the auxiliary phase stores the whole "
        "old distribution. (The logits are log-probabilities, so that `softmax` is `exp` here.) Mind the "
        "order: the **old** policy's probabilities are the weights, so that an action costs most that was "
        "frequent and becomes rare.",
    ),
    (
        "The policy phase",
        ["policy_phase"],
        "If policy and value have equally many epochs, one optimizer follows the sum of both losses, "
        "as in PPO. If not, each gets its own pass over the data and its own optimizer; `zero_grad` sets gradients to None, not to 0, "
        "since Adam makes a step even for a gradient of 0, out of its memory of earlier ones. Without "
        "`--kl-penalty` and with equal epochs, all of this computes what PPO's does.",
    ),
    (
        "A memory of a whole phase",
        ["AuxiliaryBuffer", "AuxiliaryBuffer.__init__", "AuxiliaryBuffer.store"],
        "Observations and value targets of the last N_pi rollouts. No actions, no rewards: the "
        "auxiliary phase needs neither. `store` writes a rollout into its slot; what else it does "
        "is for the buffer's files, below.",
    ),
    (
        "The old policy",
        ["old_policy_logits"],
        "At the start of a phase the policy is written down, once, for all stored states. "
        "`no_grad`, because these are data from here on: the KL must pull the new policy towards the old, "
        "and not the old towards the new.",
    ),
    (
        "An epoch of the auxiliary phase",
        ["auxiliary_epoch"],
        "Every epoch visits every stored trajectory once, in a new order. `L_joint` trains the policy's "
        "encoder to predict value targets while the KL holds the policy where it was; `L_value` uses the "
        "occasion to train the value function some more. Compare with `policy_phase`: no ratio, no "
        "advantage, no entropy.",
    ),
    (
        "The loop",
        ["train.Auxiliary phase", "train.Checkpoint"],
        "The phase stands at the start of the iteration after N_pi others. So none comes after the last "
        "iteration, where it would train a policy that acts no more, and a checkpoint can fall between a "
        "policy phase and its auxiliary phase. `store` comes last in an iteration.",
    ),
    (
        "The preparations",
        ["train.Setup"],
        "A plan that counts auxiliary phases, refusals if the buffer does not fit, and three optimizers "
        "instead of one. Adam scales steps by running means of the gradients; those of one loss are of no use to "
        "another, so each has its own. All three hold all weights, and skip those that have no gradient. "
        "(The one called `value` works only if $E_\\pi \\ne E_V$.)",
    ),
    (
        "Skip: The buffer's files",
        [
            "AuxiliaryBuffer.file",
            "AuxiliaryBuffer.storage",
            "AuxiliaryBuffer.state_dict",
            "AuxiliaryBuffer.load_state_dict",
            "AuxiliaryBuffer.lacks",
        ],
        "The buffer is gigabytes; a checkpoint must not copy it. So it lies in files that are mapped into "
        "memory, a slot says which iteration it holds, and `lacks` refuses to go on without them. On a first "
        "reading, leave it folded.",
    ),
    ("The first lines", ["docstring"], "Only the name changes."),
]

# The lines of Algorithm 1 of the paper, and the line of ppg_procgen.py that does each.
ALGORITHM = [
    (
        "for phase = 1, 2, ...",
        "if aux_buffer and aux_buffer.phases < (iteration - 1) // args.n_pi:",
    ),
    (
        r"&emsp; initialize empty buffer $B$ (here: once, then its slots are written over)",
        "aux_buffer = AuxiliaryBuffer(args, device, aux_device, files)",
    ),
    (
        r"&emsp; for iteration = 1 ... $N_\pi$: the policy phase",
        'for iteration in range(counters["iteration"] + 1, num_iterations + 1):',
    ),
    (
        r"&emsp;&emsp; perform rollouts under the current policy $\pi$",
        "for step in range(args.num_steps):",
    ),
    (
        r"&emsp;&emsp; compute the value target $\hat V^{targ}_t$ for each state",
        "advantages, returns = gae(",
    ),
    (
        r"&emsp;&emsp; for epoch = 1 ... $E_\pi$: policy epochs",
        'epochs = [("policy", ["policy", "value"])] * args.e_pi',
    ),
    (
        r"&emsp;&emsp;&emsp; optimize $L^{clip} + \beta_S S[\pi]$ wrt $\theta_\pi$",
        "L_policy = -L_clip - args.ent_coef * S + args.kl_penalty * kl_estimate(logratio)",
    ),
    (
        r"&emsp;&emsp; for epoch = 1 ... $E_V$: value epochs (if $E_\pi = E_V$: by the line of row 6)",
        'epochs = [("value", ["value"])] * args.e_v + [("policy", ["policy"])] * args.e_pi',
    ),
    (
        r"&emsp;&emsp;&emsp; optimize $L^{value}$ wrt $\theta_V$",
        'losses = {"policy": L_policy, "value": args.vf_coef * L_value}',
    ),
    (
        r"&emsp;&emsp; add all $(s_t, \hat V^{targ}_t)$ to $B$",
        "aux_buffer.store(iteration, obs, returns)",
    ),
    (
        r"&emsp; compute and store the current policy $\pi_{old}(\cdot\|s)$ for all states in $B$",
        'buffer["old_logits"] = old_policy_logits(agent, buffer, args, tick)',
    ),
    (
        r"&emsp; for epoch = 1 ... $E_{aux}$: the auxiliary phase",
        "for aux_epoch in range(1, args.e_aux + 1):",
    ),
    (
        r"&emsp;&emsp; optimize $L^{joint}$ wrt $\theta_\pi$, on all data in $B$",
        "L_joint = L_aux + args.beta_clone * KL",
    ),
    (
        r"&emsp;&emsp; optimize $L^{value}$ wrt $\theta_V$, on all data in $B$",
        "loss = L_joint + args.vf_true_weight * L_value",
    ),
]

# Section of the scripts -> what it is for.
SECTIONS = {
    "Arguments": "The flags with their help, types that refuse what is not allowed, and `check_args`, which refuses combinations of flags that cannot work.",
    "Workers": "What processes started by torchrun do together: means, lists, a common refusal. With one process, each is the identity.",
    "Checkpoints": "Writing and reading them so that a run killed at any moment goes on bit for bit. Skip it on a first reading.",
    "Environments": "Procgen's interface, the count of episodes, and games over all levels to test on.",
    "Running": "Signals, the run's directory, the log, the progress bar, films.",
    "Network": "The encoder and its heads.",
    "Equations": "What the papers write as formulas, each a short function.",
    "Training": "Minibatches, the update, and `train`, which runs everything from top to bottom.",
}

# Scalar -> (what it must start at, a bad sign, what to look at first), for reading one's own curves.
CURVES = {
    "charts/episodic_return": (
        "that of a policy that acts by chance; the first episodes to end are the shortest, which biases it",
        "no rise in a million steps; a fall that lasts",
        "the losses below: they say why",
    ),
    "charts/episodic_length": (
        "that of chance, from below",
        "it goes to the game's limit while the return stays: nothing is done any more",
        "the entropy",
    ),
    "charts/episodes": (
        "the number that ended in the first rollout",
        "it stops growing: no episode ends",
        "the length; in some games, waiting is safe",
    ),
    "charts/test_episodic_return": (
        "as the return of the training",
        "it stays behind, more and more: levels are learned by heart",
        "`--num-levels`",
    ),
    "charts/test_episodic_length": (
        "as that of the training",
        "as for the test's return",
        "as there",
    ),
    "charts/test_episodes": ("as `episodes`, for `--num-test-envs`", "as there", "as there"),
    "charts/SPS": (
        "what {doc}`speed` says for your kind of machine, or less: the first iteration is slow",
        "it falls for good, outside of auxiliary phases",
        "other programs on the machine, memory that is swapped",
    ),
    "charts/learning_rate": (
        "`--learning-rate`",
        "it changes without `--anneal-lr`",
        "the flags of the run, in its `args.json`",
    ),
    "losses/policy_loss": (
        "0, nearly: advantages have mean 0 and ratios are 1",
        "none worth the name: it hovers around zero in good and in bad runs",
        "the other scalars",
    ),
    "losses/value_loss": (
        "half the mean square of the first value targets, since $V$ is nearly 0",
        "0 from the first iteration on; or it grows by orders of magnitude",
        "the value targets; the size of the gradient steps",
    ),
    "losses/entropy": (
        r"$\ln 15 = 2.71$",
        "below 2.5 in the first iteration; near 0 while returns are low; no fall in a million steps",
        "the scale of pictures and of the policy's head; sign and size of the entropy bonus",
    ),
    "losses/approx_kl": (
        "a few hundredths at most; 0 in the first gradient step",
        "above 0.1 for long; or large from the first minibatch on",
        "the learning rate, the number of epochs; whether the stored log-probabilities are those of the actions taken",
    ),
    "losses/old_approx_kl": (
        "as `approx_kl`, and noisier",
        "far from `approx_kl`: some ratios are far from 1",
        "as for `approx_kl`",
    ),
    "losses/clipfrac": (
        "0 in the first gradient step",
        "above 0.3 for long: many ratios are out of range, and those that their advantage pushes outward teach nothing any more",
        "as for `approx_kl`",
    ),
    "losses/explained_variance": (
        "about 0: the first values are nearly constant",
        "negative for long: worse than a constant; near 0 for ever: nothing is learned; or 1 from the start, too good to be true",
        "if negative, the size of the steps, and the value targets; if near 0, whether the value loss trains anything",
    ),
    "losses/aux/aux_value_loss": (
        "near or above `real_value_loss` in the first phase: the head is new",
        "it does not fall within a phase",
        "whether the auxiliary optimizer steps, and has cleared gradients",
    ),
    "losses/aux/real_value_loss": (
        "near the last `value_loss`",
        "it does not fall within a phase although `--vf-true-weight` is 1",
        "as for `aux_value_loss`",
    ),
    "losses/aux/kl_loss": (
        "0 in the first gradient step of a phase, then small",
        "0 in the first minibatch of *every* epoch (print `metrics[0]` of `auxiliary_epoch`), or throughout: compared with itself; or above 0.1",
        "where the old policy is computed; `--beta-clone`",
    ),
}

# Fault of docs/measure.py -> (the scalars that show it, what to see), in the order of curves.md.
BROKEN = {
    "learning rate ten times as large": (
        [
            "charts/episodic_return",
            "losses/entropy",
            "losses/approx_kl",
            "losses/clipfrac",
            "losses/value_loss",
            "losses/explained_variance",
        ],
        "The first iteration moves the policy far: `approx_kl` is a hundred times what it may be, and the entropy is below 1 before the policy can know anything. Later it looks calm on this scale, with a peak of `approx_kl` far above the sound run's, but the return is stuck below the best, since some actions are never tried again, and the values are worse than a constant.",
    ),
    "pictures not divided by 255": (
        ["charts/episodic_return", "losses/entropy", "losses/value_loss"],
        "The first policy is far from uniform, and the first value loss is much too large. The entropy reveals it in the first iteration: it does not start near 2.71. Without it nothing is tried, and nothing is learned.",
    ),
    "entropy punished": (
        ["charts/episodic_return", "losses/entropy", "losses/approx_kl"],
        "A sign: the entropy bonus is subtracted. For a long time nothing shows, since the entropy falls in a sound run, too. Then `approx_kl` jumps, and the return breaks down: a policy without entropy is easily pushed from one certainty to another, and does not come back.",
    ),
    "value function not trained": (
        ["charts/episodic_return", "losses/value_loss", "losses/explained_variance"],
        "Explained variance stays near 0 (it creeps up a little, as the policy changes the features under the untrained head), and the value loss rises with the returns. The return rises all the same: on an easy game, advantages without a value function are good enough. Do not conclude from the return that all is well.",
    ),
    "no KL term": (
        ["charts/episodic_return", "losses/aux/kl_loss", "losses/aux/aux_value_loss"],
        "Nothing holds the policy in the auxiliary phase: within a phase `kl_loss` climbs to 0.3, and the return falls after every phase. (Auxiliary losses are drawn against the number of the auxiliary epoch, of which a phase has three.) The auxiliary value loss still falls within every phase.",
    ),
    "entropy bonus too large": (
        ["charts/episodic_return", "losses/entropy", "losses/approx_kl"],
        "The entropy hardly falls, and the return rises slowly, while all else is sound: the policy is paid for being undecided. Advantages have a standard deviation of 1, whatever the game, so the bonus is never small beside them by itself.",
    ),
    "rewards a step late": (
        ["charts/episodic_return", "losses/entropy", "losses/explained_variance"],
        "The hardest kind: every reward is stored one step too late, and no scalar says so. Learning is slower, since only what the discounted sum carries back to the right step still teaches. Curves do not find this fault; a test that knows the right numbers does. That is why the scripts are held to the numbers of the published code.",
    ),
}
