"""Parquet and Arrow files of Hugging Face's `datasets`: each row has an image file's bytes and a label."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from training.contract.specs import Parquet
from training.data.files.decode import printable
from training.data.files.images import ImageData
from training.data.sources.folders.image_folder import assemble
from training.data.sources.folders.listing import refuse
from training.data.sources.packed.unpacked import Sample, find_packed, unpack

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 256  # read at a time
_LABELS = ("label", "labels", "class", "target", "fine_label")


def load_parquet(spec: Parquet) -> ImageData:
    """Unpack the images of all rows; labels that are numbers get the names that the files have for them.

    Raises:
        UserError: the folder has no such file, one is damaged, or a column is missing or of another kind.
    """

    def read(files: list[str]) -> Iterator[Sample]:
        for file in files:
            yield from _read(spec, file)

    parts = find_packed(spec, ".parquet", ".arrow")
    settings = (spec.name, spec.image_column, spec.label_column)
    return assemble(spec, {part: unpack(spec, files, read, *settings) for part, files in parts.items()})


def _read(spec: Parquet, file: str) -> Iterator[Sample]:
    import pyarrow as pa

    try:
        for batch in _list_batches(file):
            image_column, label_column = _find_columns(spec, file, batch.schema)
            names = _features(batch.schema).get(label_column, {}).get("names")
            labels = batch.column(label_column).to_pylist()
            for image, label in zip(batch.column(image_column).to_pylist(), labels, strict=True):
                yield Sample(_read_image(spec, file, image), _name(spec, file, label, names))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        refuse(spec, f"{printable(file)} cannot be read ({reason})", "Get the file again.")


def _list_batches(file: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.lower().endswith(".parquet"):
        with pq.ParquetFile(file) as table:
            yield from table.iter_batches(_ROWS)
        return
    with pa.memory_map(file) as source:
        try:
            yield from pa.ipc.open_stream(source)  # the form that `save_to_disk` writes
        except pa.ArrowInvalid:
            source.seek(0)
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Return what `datasets` has written about each column: its type and, for labels, the names."""
    found = (schema.metadata or {}).get(b"huggingface")
    return json.loads(found).get("info", {}).get("features", {}) if found else {}


def _find_columns(spec: Parquet, file: str, schema: pa.Schema) -> tuple[str, str]:
    import pyarrow as pa

    features = _features(schema)
    images = [
        field.name
        for field in schema
        if pa.types.is_binary(field.type)
        or pa.types.is_large_binary(field.type)
        or (pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0)
    ]
    labels = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel"]
    labels = labels or [name for name in _LABELS if name in schema.names]
    for option, chosen, found in (
        ("image_column", spec.image_column, images),
        ("label_column", spec.label_column, labels[:1] if set(labels) <= set(_LABELS) else labels),
    ):
        if chosen is not None and (chosen not in schema.names or (option == "image_column" and chosen not in images)):
            _refuse_column(spec, f"{option}={chosen}", file, schema)
        if chosen is None and len(found) != 1:
            _refuse_column(spec, option, file, schema)
    return spec.image_column or images[0], spec.label_column or labels[0]


def _refuse_column(spec: Parquet, option: str, file: str, schema: pa.Schema) -> NoReturn:
    what = f"{printable(file)} has the columns {', '.join(schema.names)}, and data.{option} does not name one that fits"
    refuse(spec, what, f"Set data.{option.partition('=')[0]}.")


def _read_image(spec: Parquet, file: str, value: Any) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        refuse(
            spec,
            f"a row of {printable(file)} has no bytes of an image, but perhaps the path of one",
            "Write the data set with the images in it, as datasets does with push_to_hub, or use a manifest.",
        )
    return content


def _name(spec: Parquet, file: str, label: object, names: list[str] | None) -> str:
    if isinstance(label, int) and 0 <= label < len(names or ()):
        return str((names or [])[label])
    if label is None or label == "" or label == -1:
        refuse(spec, f"a row of {printable(file)} has no label", "Move files without labels out of the folder.")
    if not isinstance(label, int | str):
        refuse(
            spec, f"a label of {printable(file)} is {label!r}, neither a number nor a text", "Set data.label_column."
        )
    return str(label)
