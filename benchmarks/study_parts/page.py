"""Write the page of the study from its results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.study_parts.page_of_replays import describe_search, describe_verdict
from benchmarks.study_parts.page_of_winner import describe_peers, describe_winner
from benchmarks.study_parts.results import COMMAND, Study

WIDTH = 118


def write_page(study: Study, file: Path) -> None:
    parts = [*_introduce(study), *describe_search(study), *describe_verdict(study), *describe_winner(study)]
    parts += describe_peers(study)
    # textwrap does not break a line at this space.
    text = re.sub(r"(?<=\d) ?%", "\N{NO-BREAK SPACE}%", "\n".join(parts).strip())
    wrapped = "\n\n".join(map(_wrap, text.split("\n\n")))
    file.write_text(wrapped.replace("\N{NO-BREAK SPACE}", " ") + "\n")


def _wrap(block: str) -> str:
    """Wrap a paragraph or a list; tables, code, headings and pictures stay as they are."""
    if block.startswith(("|", "```", "#", "!")):
        return block
    items = re.split(r"\n(?=- )", block)
    indents = ["  " if item.startswith("- ") else "" for item in items]
    texts = [re.sub(r"[ \n]+", " ", item).strip(" ") for item in items]
    wrapped = [textwrap.wrap(t, WIDTH, subsequent_indent=i) for t, i in zip(texts, indents, strict=True)]
    return "\n".join(line for lines in wrapped for line in lines)


def _introduce(study: Study) -> Iterator[str]:
    settings, curves = study.settings, study.curves
    configurations = curves.configurations
    ends = sorted((c for c in configurations if c.test is not None), key=lambda c: c.best)
    base = max(configurations[: study.baselines], key=lambda c: c.best)
    yield f"""# A study on photographs

Does the search find better recipes sooner than others, and is what the report says about techniques true? This page
answers for one set of photographs, with the figures as they came. One command makes the page, its pictures and
`benchmarks/curves/photos.jsonl`; it takes hours, and goes on where it was interrupted:

```
{COMMAND}
```

## What was trained

- **Photographs**: {settings["source"]}. `--photos` takes any folder of images with at least four classes.
- **Backbone**: timm's `test_resnet`, trained here from random weights for {study.backbone["epochs"]} epochs on half of
  the classes ({", ".join(study.backbone["classes"])}); its validation accuracy on these is
  {study.backbone["score"]:.1%}.
- **Fine-tuning**: on the other classes ({", ".join(study.classes)}),
  with {settings["train"]} training images, {settings["val"]} validation images and {study.test_images} test images.
  The standard error of a test accuracy of 70 % is
  {(0.21 / study.test_images) ** 0.5:.1%}.
- **Space**: `benchmarks/study_parts/space.yaml`, twelve techniques with {len(curves.domains)} search parameters,
  {curves.lengths.max()} epochs, cosine schedule. The model sees images of {study.image_size}×{study.image_size} pixels.
- **Recorded**: {len(configurations) - study.baselines} of {settings["recipes"]} random recipes and the
  {study.baselines} baselines, each trained to the end on one thread of a machine with other work:
  {np.mean([sum(c.seconds) for c in configurations]):.1f} CPU seconds in the mean.
  Validation accuracy of the best recipe is {ends[-1].best:.1%} (test {ends[-1].test:.1%}), of the median one
  {ends[len(ends) // 2].best:.1%} (test {ends[len(ends) // 2].test:.1%}), and of the best of the baselines
  {base.best:.1%} (test {base.test:.1%}).
"""
    if len(configurations) - study.baselines < settings["recipes"]:
        yield """**The recording was not finished when this page was made.** With so few recipes the figures below are
preliminary: searches are short, and the truth about a technique is uncertain itself.
"""
