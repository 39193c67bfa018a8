"""What a run wrote to TensorBoard."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(folder):
    """tag -> [(step, value), ...] of the one run below `folder`."""
    (run_dir,) = (folder / "runs").iterdir()
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
