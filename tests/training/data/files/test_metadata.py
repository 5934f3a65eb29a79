"""Metadata of a wrong type, and with damage, in files with good pixels."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from training.data.files.decode import read_header, read_image
from training.data.pipelines.dali_loader import read_encoded

PIXELS = np.zeros((24, 16, 3), np.uint8)
PIXELS[:12] = 200
TURNED = (0x112, 3, 1, struct.pack("<H", 6))


def exif_of(*entries):
    """EXIF data with these fields: tag, type, count and value."""
    begin, body, values = 8 + 2 + 12 * len(entries) + 4, b"", b""
    for tag, kind, count, value in entries:
        place = value.ljust(4, b"\0") if len(value) <= 4 else struct.pack("<L", begin + len(values))
        values += value if len(value) > 4 else b""
        body += struct.pack("<HHL", tag, kind, count) + place
    return b"II*\0" + struct.pack("<LH", 8, len(entries)) + body + struct.pack("<L", 0) + values


# EXIF data, and whether they turn the image.
EXIF = {
    "software is a fraction": (exif_of(TURNED, (0x131, 5, 1, struct.pack("<LL", 1, 2))), True),
    "date is a number": (exif_of(TURNED, (0x132, 3, 1, b"\6\0")), True),
    "resolution is text": (exif_of(TURNED, (0x11A, 2, 4, b"abc\0"), (0x128, 2, 2, b"x\0")), True),
    "resolution is 0 / 0": (exif_of(TURNED, (0x11A, 5, 1, bytes(8)), (0x128, 3, 1, b"\2\0")), True),
    "the place of more fields is text": (exif_of(TURNED, (0x8769, 2, 2, b"x\0")), True),
    "the place of more fields is outside": (exif_of(TURNED, (0x8769, 4, 1, b"\xff\xff\xff\0")), True),
    "unknown type": (exif_of(TURNED, (0x131, 99, 1, b"abc")), True),
    "orientation is a fraction": (exif_of((0x112, 5, 1, struct.pack("<LL", 6, 1))), True),
    "orientation is text": (exif_of((0x112, 2, 2, b"6\0")), False),
    "orientation is bytes": (exif_of((0x112, 7, 1, b"\6")), False),
    "orientation is 0": (exif_of((0x112, 3, 1, b"\0\0")), False),
    "orientation is 9": (exif_of((0x112, 3, 1, b"\t\0")), False),
    "orientation is below 0": (exif_of((0x112, 9, 1, struct.pack("<l", -6))), False),
    "orientation is no number": (exif_of((0x112, 12, 1, struct.pack("<d", float("nan")))), False),
    "orientation is 0 / 0": (exif_of((0x112, 5, 1, bytes(8))), False),
    "not EXIF": (b"xxxxxxxxyyyyyyyy", False),
    "cut": (exif_of(TURNED)[:12], False),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("case", EXIF)
def test_no_field_of_the_exif_data_makes_good_pixels_unreadable(tmp_path, case, kind):
    exif, turns = EXIF[case]
    path = tmp_path / "photo"
    Image.fromarray(PIXELS).save(path, kind, exif=b"Exif\0\0" + exif, **({"lossless": True} if kind == "WEBP" else {}))
    expected = np.rot90(PIXELS, -1) if turns else PIXELS
    seen = read_image(str(path))
    assert seen.shape == expected.shape
    assert np.abs(seen.astype(int) - expected).max() < 20
    assert [read_header(str(path))[:2], read_encoded(str(path))[1]] == [expected.shape[:2], expected.shape[:2]]


def tiff_of(*fields):
    """A grey TIFF file of 24×16 pixels with more fields."""
    grey = PIXELS[..., 0]
    head = [
        *((256, 4, 1, struct.pack("<L", 16)), (257, 4, 1, struct.pack("<L", 24)), (258, 3, 1, b"\x08\0")),
        *((259, 3, 1, b"\1\0"), (262, 3, 1, b"\1\0"), (278, 4, 1, struct.pack("<L", 24))),
        (279, 4, 1, struct.pack("<L", grey.size)),
    ]
    size = len(exif_of(*head, (273, 4, 1, bytes(4)), *fields))
    whole = sorted([*head, (273, 4, 1, struct.pack("<L", size)), *fields])
    return exif_of(*whole) + grey.tobytes()


@pytest.mark.parametrize(
    ("fields", "turns"),
    [
        ([TURNED], True),
        ([TURNED, (0x131, 5, 1, struct.pack("<LL", 1, 2))], True),
        ([(0x112, 2, 2, b"6\0")], False),
        ([(0x112, 3, 1, b"\t\0")], False),
        ([TURNED, (0x8769, 2, 2, b"x\0")], True),
        ([TURNED, (700, 3, 4, b"abcdefgh")], True),
        ([TURNED, (0x8825, 5, 1, bytes(8))], True),
    ],
)
def test_no_field_of_a_tiff_makes_good_pixels_unreadable(tmp_path, fields, turns):
    path = tmp_path / "photo.tif"
    path.write_bytes(tiff_of(*fields))
    expected = np.rot90(PIXELS, -1) if turns else PIXELS
    assert read_image(str(path)).tolist() == expected.tolist()
    assert read_header(str(path))[:2] == expected.shape[:2]


def png_with(name, content, *, checksum=None):
    """A PNG file with another chunk before its pixels."""
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "PNG")
    body = name + content
    sum_of = zlib.crc32(body) if checksum is None else checksum
    chunk = struct.pack(">L", len(content)) + body + struct.pack(">L", sum_of)
    whole = stream.getvalue()
    return whole[:33] + chunk + whole[33:]


@pytest.mark.parametrize(
    "content",
    [
        png_with(b"tEXt", b"a\0b", checksum=1),
        png_with(b"zTXt", b"a\0\0" + zlib.compress(bytes(3_000_000))),
        png_with(b"iCCP", b"a\0\0no zlib"),
        png_with(b"pHYs", b"1"),
        png_with(b"eXIf", b"no EXIF"),
        png_with(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n 3\nzzz\n")),
    ],
    ids=["checksum of a text", "huge text", "colour profile", "resolution", "EXIF", "EXIF as text"],
)
def test_no_chunk_of_a_png_makes_good_pixels_unreadable(tmp_path, content):
    path = tmp_path / "photo.png"
    path.write_bytes(content)
    assert read_image(str(path)).tolist() == PIXELS.tolist()


def test_an_avif_whose_exif_data_cannot_be_written_anew_is_read(tmp_path):
    path = tmp_path / "photo.avif"
    exif, stream = exif_of((0x131, 5, 1, struct.pack("<LL", 1, 2))), io.BytesIO()
    mark = b"II*\0" + b"-" * (len(exif) - 4)
    Image.fromarray(PIXELS).save(stream, "AVIF", exif=b"Exif\0\0" + exif)
    path.write_bytes(stream.getvalue())
    assert read_image(str(path)).shape == PIXELS.shape
    damaged = stream.getvalue().replace(exif, b"xx" + mark[2:])
    assert damaged != stream.getvalue()
    path.write_bytes(damaged)
    assert read_image(str(path)).shape == PIXELS.shape
