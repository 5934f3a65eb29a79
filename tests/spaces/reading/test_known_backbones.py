"""Backbones of a space that their library does not have are found before anything starts, without importing it."""

import pytest

from spaces.reading.known_backbones import check_backbones
from training.errors import UserError


def test_a_backbone_that_the_library_does_not_have_is_refused(load):
    with pytest.raises(UserError, match=r"backbone\.name=resnet19: timm has no such model\. Did you mean resnet"):
        check_backbones(load("backbone: {choice: [{name: resnet18}, {name: resnet19}]}").recipe)
    with pytest.raises(UserError, match=r"backbone\.name=resnet18\.nowhere: timm has no such model"):
        check_backbones(load("backbone: {name: resnet18.nowhere}").recipe)
    with pytest.raises(UserError, match=r"backbone\.name=resnet19: torchvision has no such model"):
        check_backbones(load("backbone: {source: torchvision, name: {choice: [resnet18, resnet19]}}").recipe)


def test_a_backbone_with_the_tag_of_its_weights_is_known(load):
    check_backbones(load("backbone: {name: {choice: [resnet18.a1_in1k, test_vit]}}").recipe)
