"""What a part can read from its recipe. `Recipe` imports all parts, so they use this type in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from training.contract.optimizer import Optimizer
    from training.contract.policy import Policy
    from training.contract.schedule import Schedule
    from training.contract.specs import Backbone, Preprocessing
    from training.techniques.compute.channels_last import ChannelsLast
    from training.techniques.compute.compilation import Compilation
    from training.techniques.compute.data_parallel import DataParallel
    from training.techniques.compute.precision import Precision
    from training.techniques.data.cutmix import CutMix
    from training.techniques.data.flip import Flip
    from training.techniques.data.fmix import FMix
    from training.techniques.data.mixup import MixUp
    from training.techniques.data.random_crop import Crop
    from training.techniques.data.random_erasing import RandomErasing
    from training.techniques.loss.class_balance import Balance
    from training.techniques.loss.losses import Loss
    from training.techniques.model.attention_pooling import AttentionPooling
    from training.techniques.model.lora import Lora
    from training.techniques.model.unfreeze import Unfreeze
    from training.techniques.optimization.averaging import BaseAveraging
    from training.techniques.optimization.head_lr import HeadLr
    from training.techniques.optimization.layer_decay import LayerDecay
    from training.techniques.optimization.snapshots import Snapshots


class RecipeView(Protocol):
    """The fields that bundled parts read of each other; a recipe has its other fields too."""

    @property
    def backbone(self) -> Backbone: ...
    @property
    def preprocessing(self) -> Preprocessing: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int | Literal["auto"]: ...
    @property
    def attention_pooling(self) -> AttentionPooling: ...
    @property
    def data_parallel(self) -> DataParallel: ...
    @property
    def unfreeze(self) -> Unfreeze: ...
    @property
    def lora(self) -> Lora: ...
    @property
    def random_crop(self) -> Crop: ...
    @property
    def flip(self) -> Flip: ...
    @property
    def augmentation(self) -> Policy: ...
    @property
    def random_erasing(self) -> RandomErasing: ...
    @property
    def mixup(self) -> MixUp: ...
    @property
    def cutmix(self) -> CutMix: ...
    @property
    def fmix(self) -> FMix: ...
    @property
    def class_balance(self) -> Balance: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def layer_decay(self) -> LayerDecay: ...
    @property
    def head_lr(self) -> HeadLr: ...
    @property
    def optimizer(self) -> Optimizer: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def averaging(self) -> BaseAveraging: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def channels_last(self) -> ChannelsLast: ...
    @property
    def compilation(self) -> Compilation: ...
