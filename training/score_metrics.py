"""The metrics by which trials can be compared, grouped by direction."""

# A soft accuracy over few images is a better judge of two models, but what a user expects of one is the other accuracy.
SOFT = {"val_soft_accuracy": "val_accuracy", "val_soft_balanced_accuracy": "val_balanced_accuracy"}
MAXIMISED = ("val_accuracy", "val_balanced_accuracy", *SOFT, "val_macro_f1")
MINIMISED = ("val_loss", "val_ece")

COST = ("train_seconds", "finder_seconds")  # their sum is the training time of a trial, as the tables show it
PEAKS = ("peak_memory_mb", "evaluation_memory_mb")  # of an epoch: the peaks of its training and of its validation


def is_better(metric: str, value: float, than: float | None) -> bool:
    """Return whether `value` is better than `than` by this metric; every value is better than None."""
    return than is None or (value > than if metric in MAXIMISED else value < than)
