"""Say what a file is by its first bytes, for files that are not read as images although their names say so."""

from __future__ import annotations

import importlib

from PIL import features

HEAD_BYTES = 512

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1", b"mif2")
_AVIF_BRANDS = (b"avif", b"avis")
_PLAIN_WAY_OUT = "which is not read: save it as PNG or JPEG"
# The first bytes, and what the file is.
_STARTS = (
    (b"\xff\x0a", f"a JPEG XL image, {_PLAIN_WAY_OUT}"),
    (b"\0\0\0\x0cJXL \r\n", f"a JPEG XL image, {_PLAIN_WAY_OUT}"),
    (b"FUJIFILMCCD-RAW", f"a raw file of a camera (RAF), {_PLAIN_WAY_OUT}"),
    ((b"IIRO", b"IIRS", b"MMOR"), f"a raw file of a camera (ORF), {_PLAIN_WAY_OUT}"),
    (b"IIU\0", f"a raw file of a camera (RW2), {_PLAIN_WAY_OUT}"),
    (b"FOVb", f"a raw file of a camera (X3F), {_PLAIN_WAY_OUT}"),
    (b"8BPS", f"a Photoshop file, {_PLAIN_WAY_OUT}"),
    (b"gimp xcf", f"a GIMP file, {_PLAIN_WAY_OUT}"),
    (b"\x76\x2f\x31\x01", f"an OpenEXR image, {_PLAIN_WAY_OUT}"),
    (b"#?RADIANCE", f"a Radiance HDR image, {_PLAIN_WAY_OUT}"),
    (b"DDS ", f"a DDS texture, {_PLAIN_WAY_OUT}"),
    (b"\0\0\x01\0", f"an icon (ICO), {_PLAIN_WAY_OUT}"),
    (b"icns", f"an icon (ICNS), {_PLAIN_WAY_OUT}"),
    (b"SIMPLE  =", f"a FITS file, {_PLAIN_WAY_OUT}"),
    ((b"%!PS", b"\xc5\xd0\xd3\xc6"), f"a PostScript file, {_PLAIN_WAY_OUT}"),
    (b"%PDF", "a PDF document, not an image"),
    (b"version https://git-lfs", "a pointer of Git LFS, not an image: fetch the files with git lfs pull"),
    (b"/annex/objects/", "a pointer of git-annex, not an image: fetch the files with git annex get"),
    (b"\0\x05\x16\x07", "a file with a Mac's attributes (AppleDouble), not an image"),
    ((b"PK\x03\x04", b"PK\x05\x06"), "a ZIP archive or an office document, not an image"),
    (b"\x1f\x8b", "a file compressed with gzip, not an image"),
    (b"Rar!", "a RAR archive, not an image"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive, not an image"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with Zstandard, not an image"),
    (b"\x1aE\xdf\xa3", "a video (Matroska or WebM), not an image"),
    (b"\x93NUMPY", "an array of NumPy, not an image"),
    (b"\x89HDF", "an HDF5 file, not an image"),
    (b"SQLite format 3", "an SQLite database, not an image"),
    (b"PAR1", "a Parquet table, not an image"),
    # Formats that are read: the rest of the header is damaged.
    (b"\xff\xd8\xff", "a damaged JPEG file"),
    (b"\x89PNG", "a damaged PNG file"),
    ((b"GIF87a", b"GIF89a"), "a damaged GIF file"),
    ((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "a TIFF that is damaged, or not read (32-bit colours): save it as PNG"),
    ((b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"), "a damaged JPEG 2000 file"),
)


def describe_format(head: bytes) -> str:
    """Return what a file with these first bytes is, with a way out if there is one, as a part of a sentence."""
    if not head:
        return "empty file"
    if is_heic(head):
        return "a HEIC image, which pillow-heif reads: pip install pillow-heif"
    if head[4:8] == b"ftyp":
        return _describe_container(head)
    if head[:4] == b"RIFF":
        return "a damaged WebP file" if head[8:12] == b"WEBP" else "a sound or a video (RIFF), not an image"
    if known := next((name for start, name in _STARTS if head.startswith(start)), ""):
        return known
    if head[128:132] == b"DICM":
        return f"a DICOM file, {_PLAIN_WAY_OUT}"
    if head[257:262] == b"ustar":
        return "a tar archive, not an image"
    return "only zero bytes, not an image" if not head.strip(b"\0") else _describe_text(head)


def is_heic(head: bytes) -> bool:
    """Return whether a file with these first bytes is an image of HEIF that is not AVIF."""
    brands = _list_brands(head)
    return any(brand in _HEIC_BRANDS for brand in brands) and not is_avif(head)


def is_avif(head: bytes) -> bool:
    return any(brand in _AVIF_BRANDS for brand in _list_brands(head))


def can_read_heic() -> bool:
    """Return whether pillow-heif is installed; Pillow can open HEIC files then."""
    try:
        heif = importlib.import_module("pillow_heif")
    except ImportError:
        return False
    heif.register_heif_opener()
    return True


def _list_brands(head: bytes) -> list[bytes]:
    """Return the brands of a file in the container of MPEG-4, which HEIF and AVIF use too (ISO 14496-12)."""
    if head[4:8] != b"ftyp":
        return []
    end = min(int.from_bytes(head[:4], "big"), len(head))
    return [head[8:12], *(head[start : start + 4] for start in range(16, end - 3, 4))]


def _describe_container(head: bytes) -> str:
    if is_avif(head) and not features.check("avif"):
        return "an AVIF image, which this Pillow cannot read: pip install --upgrade pillow"
    if is_avif(head):
        return "a damaged AVIF file"
    if head[8:12] == b"crx ":
        return f"a raw file of a camera (CR3), {_PLAIN_WAY_OUT}"
    return "a video (MP4 or QuickTime), not an image"


def _describe_text(head: bytes) -> str:
    text = head.decode("latin-1").removeprefix("\xef\xbb\xbf").lstrip().lower()
    if text.startswith(("<!doctype html", "<html", "<head", "<body")):
        return "a page in HTML, not an image: a failed download looks like this"
    if text.startswith("<svg") or (text.startswith(("<?xml", "<!doctype svg", "<!--")) and "<svg" in text):
        return f"an SVG drawing, {_PLAIN_WAY_OUT}"
    if text.startswith(("<?xml", "<error")):
        return "a text in XML, not an image: a failed download looks like this"
    if text.startswith(("{", "[")) and text.isascii():
        return "a text in JSON, not an image: a failed download looks like this"
    return "not an image"
