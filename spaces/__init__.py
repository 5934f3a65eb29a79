"""Spaces: recipes with domains to search, and the draws from them as Optuna parameters."""
