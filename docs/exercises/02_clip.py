"""Exercise 2: six cases of clipping, without a computer's help. 10 minutes.

For each case say whether the state contributes a gradient to L^clip: replace None by True or False.
Epsilon is 0.2. Then: python -m pytest docs/exercises/02_clip.py
"""

CONTRIBUTES = {  # (ratio, advantage): does this state move the policy?
    (1.0, +1.0): None,
    (1.3, +1.0): None,
    (0.7, +1.0): None,
    (1.0, -1.0): None,
    (1.3, -1.0): None,
    (0.7, -1.0): None,
}

# ------------------------------------------------------------------------------------- the checks

HINTS = {
    (1.0, +1.0): "a ratio of 1 is within the range, whatever the advantage",
    (1.3, +1.0): "the action is good and has become likelier by more than epsilon: enough",
    (0.7, +1.0): "the action is good and has become RARER: nothing may stop the way back",
    (1.0, -1.0): "a ratio of 1 is within the range, whatever the advantage",
    (1.3, -1.0): "the action is bad and has become LIKELIER: nothing may stop the way back",
    (0.7, -1.0): "the action is bad and has become rarer by more than epsilon: enough",
}


def gradient(ratio, advantage):
    import torch

    r = torch.tensor(ratio, requires_grad=True)
    torch.min(r * advantage, r.clamp(0.8, 1.2) * advantage).backward()
    return r.grad.item() != 0


def test_all_cases():
    for case in HINTS:
        answer = CONTRIBUTES.get(case)
        if answer is None:
            raise NotImplementedError
        where = f"ratio {case[0]}, advantage {case[1]}"
        assert isinstance(answer, bool), f"{where}: answer True or False, without quotes"
        right = answer == gradient(*case)  # pytest would print both sides
        assert right, f"{where}: {HINTS[case]}"
