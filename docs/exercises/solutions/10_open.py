PLAN = {
    "question": "Does the auxiliary phase pay within a million steps, and do more epochs pay more?",
    "hypothesis": "Yes: features that predict values help most as long as the policy is bad.",
    "arms": {
        f"{epochs} epochs": "python ppg_procgen.py --env-id starpilot --n-pi 8 "
        f"--total-timesteps 1e6 --e-aux {epochs}"
        for epochs in (0, 3, 6)
    },
    "seeds": [1, 2, 3],
    "metric": "charts/episodic_return",
    "refuted_if": "At the last step, the mean over seeds is not highest with 6 epochs and lowest "
    "with 0, or 0 and 6 differ by less than twice the deviation between seeds.",
}
