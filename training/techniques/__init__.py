"""Techniques: one small file each; `training.contract` defines their interface."""
