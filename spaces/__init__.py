"""A recipe with holes, its draws as Optuna parameters, and the way back."""
