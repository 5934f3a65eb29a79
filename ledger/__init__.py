"""A sweep on disk: its events, its folder, and what follows from them. Without Ray, MLflow and torch."""

TRACKING_URI = "sqlite:///mlflow.db"
EXPERIMENT = "technique-search"
SWEEPS, STORAGE_VARIABLE = "sweeps", "SWEEP_STORAGE"  # the folder of sweeps, and what names another one
# Of MLflow: it names the experiment of new runs, and the only one to read.
EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
OWNER = "owner"  # the tag of a sweep that MLflow has as the user of its run
