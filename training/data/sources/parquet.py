"""Parquet and Arrow files of Hugging Face's `datasets`: each row has an image file's bytes and a label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from pydantic import BaseModel, Field, ValidationError

from training.contract.specs import FileData
from training.data.files.images import ImageData
from training.data.files.listing import is_no_label
from training.data.files.system_files import is_system_path
from training.errors import printable
from training.process.text_files import parse_json

if TYPE_CHECKING:
    import pyarrow as pa

    from training.data.files.unpacked import Sample

_ROWS = 256  # read at a time
_LABELS = ("label", "labels", "class", "target", "fine_label")


class _Feature(BaseModel):
    """What `datasets` writes about a column."""

    kind: object = Field(None, alias="_type")
    names: list[str] | None = None


class _Info(BaseModel):
    features: dict[str, object] = {}


class _Metadata(BaseModel):
    info: _Info = _Info()


class Parquet(FileData):
    """A folder of Parquet or Arrow files, as Hugging Face's `datasets` writes them: a column of images and one of labels."""

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".arrow")

    name: Literal["parquet"] = "parquet"
    root: str = Field(min_length=1, description="Path of the folder.")
    image_column: str | None = Field(None, min_length=1, description="Column of images; null: the one that has some.")
    label_column: str | None = Field(
        None, min_length=1, description="Column of the labels; null: the one of class labels, or the one named label."
    )

    def load(self) -> ImageData:
        """Unpack the images of all rows; labels that are numbers get the names that the files have for them."""
        from training.data.files.unpacked import load_packed

        has_labels = partial(_has_labels, self)
        return load_packed(self, self.root, partial(_read, self), has_labels, self.image_column, self.label_column)


def _read(spec: Parquet, file: str) -> Iterator[Sample]:
    with _faults_refused(spec, file):
        for batch in _list_batches(file):
            image_column, label_column = _find_columns(spec, file, batch.schema)
            names = _features(batch.schema).get(label_column, _Feature()).names
            labels = batch.column(label_column).to_pylist()
            for image, label in zip(batch.column(image_column).to_pylist(), labels, strict=True):
                if isinstance(image, dict) and is_system_path(image.get("path") or ""):
                    continue
                yield _read_image(spec, file, image), _name(spec, file, label, names)


def _has_labels(spec: Parquet, file: str) -> bool:
    with _faults_refused(spec, file):
        return any(not is_no_label(label) for labels in _list_labels(spec, file) for label in labels.to_pylist())


def _list_labels(spec: Parquet, file: str) -> Iterator[pa.Array]:
    import pyarrow.parquet as pq

    if not file.lower().endswith(".parquet"):  # an Arrow file is mapped, so that its images are not read
        yield from (batch.column(_find_columns(spec, file, batch.schema)[1]) for batch in _list_batches(file))
        return
    with pq.ParquetFile(file) as table:
        label_column = _find_columns(spec, file, table.schema_arrow)[1]
        yield from (batch.column(0) for batch in table.iter_batches(_ROWS, columns=[label_column]))


@contextmanager
def _faults_refused(spec: Parquet, file: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except ValidationError:
        what = f"{printable(file)} describes its columns in another form than that of datasets"
        spec.refuse(what, "Write it again with datasets, or without this metadata.")
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        spec.refuse(f"{printable(file)} cannot be read ({reason})", "Get the file again.")


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


def _features(schema: pa.Schema) -> dict[str, _Feature]:
    """Return what `datasets` has written about each column: its type and, for labels, the names."""
    written = (schema.metadata or {}).get(b"huggingface", b"{}")
    features = _Metadata.model_validate(parse_json(written)).info.features
    described = {name: it for name, it in features.items() if name in schema.names and isinstance(it, dict)}
    return {name: _Feature.model_validate(it) for name, it in described.items()}


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
    labels = [name for name, feature in features.items() if feature.kind == "ClassLabel"]
    labels = labels or [name for name in _LABELS if name in schema.names]
    for option, chosen, candidates in (
        ("image_column", spec.image_column, images),
        ("label_column", spec.label_column, labels[:1] if set(labels) <= set(_LABELS) else labels),
    ):
        if chosen is not None and (chosen not in schema.names or (option == "image_column" and chosen not in images)):
            _refuse_column(spec, f"{option}={chosen}", file, schema)
        if chosen is None and len(candidates) != 1:
            _refuse_column(spec, option, file, schema)
    return spec.image_column or images[0], spec.label_column or labels[0]


def _refuse_column(spec: Parquet, option: str, file: str, schema: pa.Schema) -> NoReturn:
    what = f"{printable(file)} has the columns {', '.join(schema.names)}, and data.{option} does not name one that fits"
    spec.refuse(what, f"Set data.{option.partition('=')[0]}.")


def _read_image(spec: Parquet, file: str, value: object) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        spec.refuse(
            f"a row of {printable(file)} has no bytes of an image, but perhaps the path of one",
            "Write the data set with the images in it, as datasets does with push_to_hub, or use a manifest.",
        )
    return content


def _name(spec: Parquet, file: str, label: object, names: list[str] | None) -> str:
    if is_no_label(label):
        what = f"a row of {printable(file)} has no label ({label}), and others of its part have one"
        way_out = "Write it again without such rows; if -1 is a class, give it a number from 0 on that no other has."
        spec.refuse(what, way_out)
    if isinstance(label, float | Decimal) and label == int(label):
        label = int(label)
    if isinstance(label, bytes):
        label = label.decode("utf-8", "replace")
    if isinstance(label, int) and 0 <= label < len(names or ()):
        return str((names or [])[label])
    if not isinstance(label, int | str):
        what = f"a label of {printable(file)} is {label!r}, neither a whole number nor a text"
        spec.refuse(what, "Set data.label_column.")
    return str(label)
