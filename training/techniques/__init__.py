"""Techniques: one small file each; `base.py` holds the contract."""
