"""Unusable data, and wrong commands about data: the row's name, the command, words of its error."""

from __future__ import annotations


def folder(name: str) -> str:
    return f"run quick 'data={{name: image_folder, root: {name}}}'"


def table(name: str) -> str:
    return f"run quick 'data={{name: manifest, path: {name}.csv}}'"


def packed(name: str, root: str) -> str:
    return f"run quick 'data={{name: {name}, root: {root}}}'"


DATA = {
    "a folder of images that is not there": (folder("photo"), "data.root=", "photo", "no such folder"),
    "a folder of images below an image": (folder("photo.png/cat"), "data.root=", "photo.png/cat"),
    "an image for a folder": (folder("photo.png"), "data.root=", "photo.png", "a file, not a folder"),
    "a dangling link for a folder": (folder("dangling"), "data.root=", "dangling"),
    "a named pipe for a folder": (folder("pipe"), "data.root=", "pipe", "not a folder"),
    "an empty root": ("run quick 'data={name: image_folder, root: \"\"}'", "data.root", "at least 1 character"),
    "no root": ("run quick 'data={name: image_folder}'", "data.root is missing", "root: ..."),
    "a root that is null": ("run quick 'data={name: image_folder, root: null}'", "data.root=null", "text"),
    "a root that is a number": ("run quick 'data={name: image_folder, root: 3}'", "data.root=3", "text"),
    "a root that is a list": ("run quick 'data={name: image_folder, root: [photos]}'", "data.root=[photos]", "text"),
    "a root with a NUL": ("run quick 'data={name: image_folder, root: \"pho\\0tos\"}'", "data.root"),
    "a root of 5,000 letters": (folder("p" * 5000), "data.root"),
    "a root with a path for a CSV": ("run quick 'data={name: image_folder, path: photos}'", "data", "path"),
    "an empty folder": (folder("empty"), "data.root=", "empty", "one subfolder per class"),
    "images without folders": (folder("flat"), "data.root=", "flat", "one subfolder per class"),
    "one class": (folder("one_class"), "one_class", "only one class, 'cat'", "two"),
    "two images in a class": (folder("few"), "few", "class 'cat' has 2 images", "at least 3"),
    "a class without images": (folder("empty_class"), "empty_class", "class 'dog' has no image"),
    "classes without images": (folder("no_images"), "no_images", "has no image"),
    "a class in validation alone": (folder("strange_val"), "strange_val", "'bird'", "train"),
    "validation without images": (folder("empty_val"), "empty_val", "val", "no image"),
    "images that cannot be read": (folder("broken"), "broken", "cannot be read", "data.skip_unreadable=true"),
    "an image of 1×5,000,000 pixels": (folder("thin"), "thin.png", "1×5000000 pixels", "data.skip_unreadable=true"),
    "an image of 1×5,000,000 pixels before a sweep": (f"{folder('thin')} --check", "1 check failed (data)"),
    "an image of 1×5,000,000 pixels to look at": ("data thin", "thin.png", "1×5000000 pixels"),
    "more training images than there are": ("run quick data.train_size=5000", "data.train_size=5000"),
    "fewer training images than classes": ("run quick data.train_size=3", "data.train_size=3", "10"),
    "a table that is not there": (table("nothing"), "data.path=", "nothing.csv"),
    "a folder for a table": (table("folder"), "data.path=", "folder.csv", "cannot be read"),
    "an empty table": (table("empty"), "data.path=", "empty.csv", "path", "label"),
    "a table without a header": (table("no_header"), "data.path=", "no column path"),
    "a table without labels": (table("no_label"), "data.path=", "no column label"),
    "a header in capitals": (table("capitals"), "data.path=", "Path"),
    "a table with semicolons": (table("semicolons"), "data.path=", "no column path"),
    "a table of a header": (table("only_header"), "data.path=", "no line below its header"),
    "a table with a missing file": (table("no_file"), "data.path=", "line 22", "nothing.png"),
    "a table with an empty path": (table("no_path"), "data.path=", "line 22", "no path"),
    "a table with an empty label": (table("blank_label"), "data.path=", "line 22", "no label"),
    "a table with a file twice": (table("twice"), "data.path=", "lines 2 and 22", "same file"),
    "a table of one label": (table("one_label"), "data.path=", "only one class, 'cat'"),
    "a misspelt split": (table("strange_split"), "data.path=", "split=trian", "train, val or test"),
    "a split for some lines": (table("half_split"), "data.path=", "line 2 has no split"),
    "a split into one part": (table("only_train"), "data.path=", "val part has no image"),
    "a group in two parts": (table("group_in_two"), "data.path=", "group 'g'"),
    "a folder among images": (table("folder_as_image"), "photos/cat", "not a regular file"),
    "a label in validation alone": (table("val_only_label"), "data.path=", "bird", "val"),
    "a table in Latin-1": (table("latin"), "data.path=", "latin.csv", "UTF-8"),
    "a table with a NUL": (table("nul"), "data.path=", "nul.csv"),
    "a table of bytes": (table("binary"), "data.path=", "binary.csv", "UTF-8"),
    "a table with a root that is not there": (
        "run quick 'data={name: manifest, path: no_file.csv, root: nowhere}'", "line 2", "nowhere", "data.root",
    ),
    "data with no path": ("run quick 'data={name: manifest}'", "data.path is missing"),
    # The command that shows data.
    "a misspelt data set to look at": ("data digit", "digit", "Did you mean digits?"),
    "nothing to look at": ("data", "Missing argument", "sweep data --help"),
    "an empty word to look at": ("data ''", "data.root="),
    "an image to look at": ("data photo.png", "photo.png"),
    "text to look at": ("data notes.txt", "notes.txt"),
    "an empty folder to look at": ("data empty", "empty", "one subfolder per class"),
    "a missing folder to look at": ("data nowhere/photos", "nowhere/photos", "no such"),
    "a missing table to look at": ("data nothing.csv", "nothing.csv", "no such file"),
    "a dangling link to look at": ("data dangling", "dangling", "no such"),
    "a broken space to look at": ("data bad/open.yaml", "bad/open.yaml", "not YAML"),
    "broken images to look at": ("data broken", "broken", "cannot be read", "data.skip_unreadable=true"),
    "a check of data without files": ("data digits --check", "--check", "digits", "no image files"),
    "a check of a missing table": ("data nothing.csv --check", "nothing.csv", "no such file"),
    "a picture below a file": ("data digits --out notes.txt/data.png", "--out=notes.txt/data.png"),
    "a picture that is a folder": ("data digits --out empty", "--out=empty", "folder"),
    "a picture of no known kind": ("data digits --out picture.xyz", "--out=picture.xyz", ".png"),
    "a picture without an ending": ("data digits --out picture", "--out=picture", ".png"),
    "a picture of no name": ("data digits --out ''", "--out="),
    "data with a misspelt override": ("data digits mixpu.alpha=1", "mixpu", "Did you mean mixup?"),
    "data with an unknown option": ("data digits --chekc", "--chekc", "--check"),
    "CIFAR in a root that is a file": ("data cifar10 data.root=notes.txt", "data.root", "notes.txt"),
    "two things to look at": ("data digits cifar10", "cifar10", "path=value"),
    "part folders in capitals": (folder("capital_parts"), "capital_parts", "'bird'", "train"),
    "part folders with more words": (folder("named_parts"), "named_parts", "'seg_test' and 'seg_train' look like parts"),
    "images beside the class folders": (folder("beside"), "beside", "0.png"),
    "a named pipe for a table": ("data pipe.csv", "pipe.csv"),
    "a Parquet file of 0 bytes": (packed("parquet", "no_rows"), "no_rows", "cannot be read"),
    "Parquet with metadata that is junk": (packed("parquet", "junk_metadata"), "cannot be read", "Get the file again"),
    "Parquet with metadata that is a list": (packed("parquet", "list_metadata"), "describes its columns in another form"),
    "Parquet with deep metadata": (packed("parquet", "deep_metadata"), "it is nested too deep"),
    "Parquet whose names are a number": (packed("parquet", "number_names"), "describes its columns in another form"),
    "Parquet with half of a character": (packed("parquet", "half_names"), "half of a character"),
    "a tar file without images": (packed("webdataset", "empty_tar"), "empty_tar", "there is no image in it"),
    "a label of 5,000 letters": (packed("webdataset", "long_label"), "long_label", "has 5000 letters"),
    "a label of 5,000 letters to look at": ("data long_label", "has 5000 letters", "Use 255 at most"),
    "a label of 5,000 letters in a table": (table("long_label"), "has 5000 letters"),
}  # fmt: skip
