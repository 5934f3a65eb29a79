"""The metrics that can rank trials, by direction."""

MAXIMISED = ("val_accuracy", "val_balanced_accuracy", "val_macro_f1")
MINIMISED = ("val_loss", "val_ece")


def is_better(metric: str, value: float, than: float | None) -> bool:
    """Whether `value` improves on `than` in the direction of the metric; anything improves on None."""
    return than is None or (value > than if metric in MAXIMISED else value < than)
