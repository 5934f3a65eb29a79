"""What a file says about its pixels: damaged metadata never makes good pixels unreadable."""

from __future__ import annotations

from PIL import ExifTags, Image, TiffImagePlugin

from training.data.files.formats import is_avif

_UPRIGHT = 1
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


def read_orientation(image: Image.Image) -> int:
    """Return the orientation by the EXIF or XMP data, from 1 to 8; anything else there counts as 1 (upright)."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
        return next((number for number in range(1, 9) if number == value), _UPRIGHT)  # a fraction is a number too
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever Pillow raises for damaged metadata, the pixels can be read
        return _UPRIGHT


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return height and width in pixels, after the orientation is applied."""
    width, height = image.size
    turned = read_orientation(image) > 4
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        turned = turned and image.tag_v2.get(ExifTags.Base.Orientation) not in range(5, 9)  # else it has been applied
    return (width, height) if turned else (height, width)


def has_more_images(image: Image.Image) -> bool:
    """Return whether other pages or frames follow this image; the previews that cameras append to a photo are none."""
    try:
        return image.format != "MPO" and getattr(image, "is_animated", False)
    except Exception:  # noqa: BLE001 - whatever Pillow raises for a second frame, the first one can be read
        return False


def turn_upright(image: Image.Image) -> Image.Image:
    """Decode an image and apply its orientation.

    Its other metadata are dropped first: `ImageOps.exif_transpose` writes them anew, which fails for wrong types.
    """
    orientation = read_orientation(image)
    exif = image.getexif()  # Pillow keeps the object, even if it could not read all of it
    exif.load(b"")
    for name in ("xmp", "XML:com.adobe.xmp"):  # for TIFF files Pillow would write them anew too
        image.info.pop(name, None)
    is_tiff = isinstance(image, TiffImagePlugin.TiffImageFile)
    if is_tiff and orientation != _UPRIGHT:
        exif[ExifTags.Base.Orientation] = orientation
    image.load()  # applies the orientation of a TIFF file
    turn = TURNS.get(orientation)
    return image if is_tiff or turn is None else image.transpose(turn)


def without_metadata(content: bytes) -> bytes | None:
    """Return an image file without everything but pixels, or None for formats in which metadata do no harm."""
    if content.startswith(b"\xff\xd8\xff"):
        return _strip_jpeg(content)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _strip_png(content)
    if is_avif(content[:512]):
        return content.replace(b"Exif", b"none").replace(b"application/rdf+xml", b"application/none+++")
    if content[:4] == b"RIFF":
        return content.replace(b"EXIF", b"none").replace(b"XMP ", b"none").replace(b"ICCP", b"none")
    return None


def _strip_jpeg(content: bytes) -> bytes:
    """Leave out the comments and the segments of applications; APP0 and APP14 say how the colours are stored."""
    kept, start = [content[:2]], 2
    while start + 4 <= len(content) and content[start] == 0xFF and content[start + 1] != 0xDA:
        end = start + 2 + int.from_bytes(content[start + 2 : start + 4], "big")
        marker = content[start + 1]
        if not (marker == 0xFE or (0xE1 <= marker <= 0xEF and marker != 0xEE)):
            kept.append(content[start:end])
        start = end
    return b"".join([*kept, content[start:]])


def _strip_png(content: bytes) -> bytes:
    kept, start = [content[:8]], 8
    while start + 12 <= len(content):
        end = start + 12 + int.from_bytes(content[start : start + 4], "big")
        if content[start + 4 : start + 8] in _PIXEL_CHUNKS:
            kept.append(content[start:end])
        start = end
    return b"".join(kept)
