"""TrivialAugment and RandAugment in a DALI graph: the changes of nvidia.dali.auto_aug, selected by our draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from training.contract.specs import Preprocessing
from training.data.pipelines.augmentation_draws import draw_choices
from training.techniques.data.torchvision_policies import STRENGTHS, RandAugment, TrivialAugment

if TYPE_CHECKING:
    from nvidia.dali.auto_aug.core import _Augmentation
    from nvidia.dali.data_node import DataNode

FARTHEST = 150 / 331  # largest shift in RandAugment, as a share of the side, as in torchvision


def import_dali() -> tuple[Any, ...]:
    """Return DALI's operators, types and arithmetic: late, as it is optional, and as Any, as its stubs lack names."""
    from nvidia.dali import fn, math, types

    return fn, types, math


def draw_choice_inputs(policy: TrivialAugment | RandAugment, seeds: np.ndarray, side: int) -> dict[str, np.ndarray]:
    """Return the inputs of `change_by_choice` by name, int32 (N,) each."""
    rounds = count_rounds(policy)
    kind, strength, sign = draw_choices(seeds, rounds, len(list_changes(policy, side)))
    columns = {"kind": kind, "strength": strength, "sign": sign}
    return {
        f"{name}{number}": np.ascontiguousarray(values[:, number])
        for name, values in columns.items()
        for number in range(rounds)
        if name != "strength" or isinstance(policy, TrivialAugment)
    }


def change_by_choice(images: DataNode, policy: TrivialAugment | RandAugment, preprocessing: Preprocessing) -> DataNode:
    """Add the changes to a graph: uint8 (height, width, 3) to the same."""
    from nvidia.dali.auto_aug.core import select, signed_bin

    fn, types, _ = import_dali()

    def read(name: str) -> DataNode:
        return fn.external_source(name=name, dtype=types.INT32, ndim=0)

    changes = list_changes(policy, preprocessing.side)
    nearest = preprocessing.interpolation == "nearest"
    for number in range(count_rounds(policy)):
        strength = policy.magnitude if isinstance(policy, RandAugment) else read(f"strength{number}")
        images = select(
            changes,
            read(f"kind{number}"),
            data=images,
            magnitude_bin=signed_bin(strength, random_sign=read(f"sign{number}")),
            num_magnitude_bins=STRENGTHS,
            fill_value=0,
            interp_type=types.INTERP_NN if nearest else types.INTERP_LINEAR,  # DALI has no bicubic interpolation here
        )
    return images


def count_rounds(policy: TrivialAugment | RandAugment) -> int:
    """Return the number of changes of each image."""
    return policy.num_ops if isinstance(policy, RandAugment) else 1


def list_changes(policy: TrivialAugment | RandAugment, side: int) -> list[_Augmentation]:
    """Return the changes of DALI that belong to a policy, for images of side × side pixels."""
    from nvidia.dali.auto_aug.rand_augment import get_rand_augment_suite
    from nvidia.dali.auto_aug.trivial_augment import get_trivial_augment_wide_suite

    if isinstance(policy, TrivialAugment):
        return get_trivial_augment_wide_suite()
    return get_rand_augment_suite(max_translate_abs=round(FARTHEST * side))
