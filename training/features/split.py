"""Divide a model at one tensor: a frozen part computes it from the images, the rest computes the logits from it.

The model is traced by torch.fx (Reed et al. 2022). Modules that are frozen or trained as a whole are not traced: they are
called as before, with their hooks.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from timm.layers import DropPath
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torchvision.ops import StochasticDepth

from training.model.stages import head_of

# Modules of these that vary are listed here.
_KNOWN = ("torch.nn.", "timm.", "torchvision.", "training.model.convolutions")
_RANDOM = ("drop", "rand", "bernoulli", "stochastic", "normal_", "uniform_")  # parts of the names of random functions


class NoSplit(Exception):
    """The model cannot be divided; the message is the reason."""


class Features(NamedTuple):
    """What a batch holds in place of images: the features (N, ...) at which the rest of the model starts."""

    values: torch.Tensor


class _Whole(nn.Module):
    """Calls the model as the training does, with its hooks and without its optional arguments."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images)


@dataclass(frozen=True)
class Split:
    """The two parts share the modules of the model, so they always have its current weights."""

    whole: _Whole
    prefix: fx.Graph
    run_prefix: fx.GraphModule
    run_rest: fx.GraphModule

    def compute_features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features (N, ...) of images (N, 3, side, side), without gradients."""
        with torch.no_grad():
            return self.run_prefix(images)

    def compute_logits(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes). The features stay as they are, because a batch may be used twice."""
        return self.run_rest(features.clone())

    def weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Return the name and the value of each tensor that the features depend on."""
        for node in self.prefix.nodes:
            name = str(node.target)
            if node.op == "call_module":
                yield from self.whole.get_submodule(name).state_dict(prefix=f"{name}.").items()
            elif node.op == "get_attr" and isinstance(value := operator.attrgetter(name)(self.whole), torch.Tensor):
                yield name, value


def split_model(model: nn.Module) -> Split:
    """Divide a model whose frozen modules are in eval mode, and whose other modules are in training mode.

    Raises:
        NoSplit: nothing is frozen, several tensors pass from the frozen part to the rest, or the model cannot be traced.
    """
    modes = {module: module.training for module in model.modules()}
    fixed = _find_fixed_modules(model)
    mixed = _find_mixed_modules(model, fixed)
    whole, graph = _trace(model, mixed)
    try:
        model.eval()
        _, in_eval = _trace(model, mixed)
    finally:
        for module, mode in modes.items():
            module.training = mode
    if str(graph) != str(in_eval):
        raise NoSplit("the model computes in another way in evaluation")
    return _cut(graph, whole, _find_fixed_nodes(whole, graph, fixed))


def _find_fixed_modules(model: nn.Module) -> set[nn.Module]:
    """Return the modules whose output for an image never changes during the training."""
    fixed: set[nn.Module] = set()
    for module in reversed(list(model.modules())):  # children come before their parents
        trains = any(p.requires_grad for p in module.parameters(recurse=False))
        if not trains and not _varies(module) and fixed.issuperset(module.children()):
            fixed.add(module)
    return fixed


def _find_mixed_modules(model: nn.Module, fixed: set[nn.Module]) -> set[nn.Module]:
    """Return the modules with a frozen part and a part that trains, and those around the head."""
    ends = {head_of(model), *(module for module in fixed if any(True for _ in module.parameters()))}
    parts = {module: set(module.modules()) - {module} for module in model.modules() if module not in fixed}
    return {module for module, inner in parts.items() if not inner.isdisjoint(ends)}


def _varies(module: nn.Module) -> bool:
    """Whether a module draws random numbers or changes its buffers at each call."""
    if not module.training:
        return False
    if isinstance(module, _DropoutNd | StochasticDepth):
        return module.p > 0
    if isinstance(module, DropPath):
        return bool(module.drop_prob)
    is_known = type(module).__module__.startswith(_KNOWN)
    return isinstance(module, _BatchNorm | nn.RReLU) or (not is_known and next(module.children(), None) is None)


def _trace(model: nn.Module, mixed: set[nn.Module]) -> tuple[_Whole, fx.Graph]:
    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return m not in mixed

    whole, random = _Whole(model), torch.get_rng_state()
    try:
        graph = Tracer().trace(whole)
    except Exception as error:
        raise NoSplit(f"torch.fx cannot trace the model: {str(error).split(chr(10))[0]}") from error
    if not torch.equal(torch.get_rng_state(), random):  # the graph would have them as constants
        torch.set_rng_state(random)
        raise NoSplit("the model draws random numbers that do not depend on the images")
    return whole, graph


def _find_fixed_nodes(whole: _Whole, graph: fx.Graph, modules: set[nn.Module]) -> set[fx.Node]:
    """Return the nodes whose value for an image never changes during the training."""
    parameters = dict(whole.named_parameters())
    fixed: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_module":
            is_own = whole.get_submodule(str(node.target)) in modules
        elif node.op == "get_attr":
            is_own = not (node.target in parameters and parameters[str(node.target)].requires_grad)
        else:
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            is_own = node.op == "placeholder" or (node.op != "output" and not any(word in name for word in _RANDOM))
        if is_own and all(given in fixed for given in node.all_input_nodes):
            fixed.add(node)
    return fixed


def _cut(graph: fx.Graph, whole: _Whole, fixed: set[fx.Node]) -> Split:
    images = next(node for node in graph.nodes if node.op == "placeholder")
    of_images = {images}
    for node in graph.nodes:
        if not of_images.isdisjoint(node.all_input_nodes):
            of_images.add(node)
    ends = [node for node in graph.nodes if node in fixed & of_images and any(user not in fixed for user in node.users)]
    if len(ends) != 1 or ends[0] is images:
        raise NoSplit("nothing is frozen" if images in ends else f"{len(ends)} tensors leave the frozen part")
    if ends[0] in (output := next(node for node in graph.nodes if node.op == "output")).all_input_nodes:
        raise NoSplit("nothing trains")
    prefix, rest = fx.Graph(), fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in _list_needed(graph, ends[0], stop=None):
        copied[node] = prefix.node_copy(node, lambda given: copied[given])
    prefix.output(copied[ends[0]])
    new: dict[fx.Node, fx.Node] = {ends[0]: rest.placeholder("features")}
    for node in _list_needed(graph, output, stop=ends[0]):
        new[node] = rest.node_copy(node, lambda given: new[given])
    return Split(whole, prefix, fx.GraphModule(whole, prefix), fx.GraphModule(whole, rest))


def _list_needed(graph: fx.Graph, last: fx.Node, stop: fx.Node | None) -> list[fx.Node]:
    """Return `last` and the nodes that it needs, in the order of the graph; `stop` and what only it needs are left out."""
    needed, pending = {last}, [last]
    while pending:
        new = [given for given in pending.pop().all_input_nodes if given is not stop and given not in needed]
        needed.update(new)
        pending += new
    return [node for node in graph.nodes if node in needed]
