"""What network disks and operating systems put into folders: thumbnails, bins, snapshots and notes about files."""

from __future__ import annotations

import os
import re

# Patterns of whole names, in lower case. Words that a class may have, such as `recycled`, are not among them.
_NAMES = (
    # Synology: thumbnails and streams beside each photo, the bin, snapshots
    *("@eadir(?:@tmp)?", "@tmp", "synophoto_thumb_.*", ".*@syno(?:resource|eastream)"),
    *("@sharebin", "#recycle", "#snapshot"),
    # QNAP, and others in its form
    *("@recycle", "@recently-snapshot", r"network recycle bin(?: \d+)?"),
    *("@transcode", r"\.?@__thumb", r"\.@upload_cache"),
    # Other servers: NetApp, Samba, ZFS
    *("~snapshot", r"\.snapshots?", r"\.recycle", r"\.zfs"),
    # Windows, also as WSL and Samba show its streams
    *(r"thumbs\.db(?::.*)?", r"ehthumbs(?:_vista)?\.db", r"desktop\.ini", r".*[:\uf03a]zone\.identifier(?::\$data)?"),
    *(r"\$recycle\.bin", "system volume information", r"found\.\d{3}"),
    # macOS, also as netatalk stores it
    *("__macosx", r"\._.*", r"\.ds_store", r"\.appledouble", r"\.trash(?:es)?", r"\.spotlight-v100", r"\.fseventsd"),
    *("icon\r", "network trash folder", "temporary items", r"\.temporaryitems", ":2e.*"),
    # Linux
    *(r"lost\+found", r"\.trash-\d+", r"\.thumbnails", r"\.nfs[0-9a-f]+", r"\.fuse_hidden.*", r"\.directory"),
)
_SYSTEM = re.compile("|".join(_NAMES), re.DOTALL)
_APPLE_DOUBLE = b"\x00\x05\x16\x07"  # the first bytes of `._0.png`, which has what a Mac notes about 0.png


def is_system_name(name: str) -> bool:
    """Return whether a system gives a file or a folder this name."""
    return bool(_SYSTEM.fullmatch(name.lower()))


def is_system_path(path: str, root: str = "") -> bool:
    """Return whether a system has made the file at this path, or a folder below the root that it is in.

    Of an absolute path outside the root only the name counts: the data may be read from a snapshot of a disk.
    """
    folder = os.path.join(root, "")  # it ends with a separator, because a neighbour's name may begin as the root's does
    if root and path.startswith(folder):
        path = path.removeprefix(folder).lstrip("/")
    return any(map(is_system_name, [os.path.basename(path)] if os.path.isabs(path) else re.split(r"[/\\]", path)))


def is_system_content(content: bytes) -> bool:
    """Return whether a file has what a Mac notes about another file; it may have that one's name."""
    return content.startswith(_APPLE_DOUBLE)
