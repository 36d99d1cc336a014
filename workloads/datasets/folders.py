"""Folders of pictures: one folder per class, with the name of the class.

Classes are numbered in the order of their names; pictures are in the order of theirs. The held-out pictures are in
`test` or `val` beside `train`. If there are only classes, every fifth picture of each is held out, beginning with the
first: a fixed split. A picture is cropped to the model's aspect ratio around its centre, and then scaled to the model's
size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.workloads.datasets.dataset_files import Half, LoadedDataset, each, some

ENDINGS = {".png", ".jpg", ".jpeg"}
HELD_OUT = ("test", "val")
EVERY = 5

Listed = list[tuple[Path, int]]
"""pictures, each with its class"""


def read(folder: Path, shape: Sequence[int]) -> LoadedDataset:
    """Reads the pictures below a folder.

    Args:
        folder: contains ``train`` and ``test`` (or ``val``), or the classes themselves.
        shape: channels (1 or 3), height and width of the model's samples.

    Raises:
        InputError: the folder is wrong; with all mistakes.
    """
    train, test, classes = listed(folder)

    def half(listed: Listed) -> Half:
        pictures = each(listed, lambda entry: picture(entry[0], shape))
        return Half(np.array(pictures), np.array([label for _, label in listed], np.int64))

    first, second = each((train, test), half)
    return LoadedDataset(first, second, len(classes))


def listed(folder: Path) -> tuple[Listed, Listed, list[str]]:
    """Lists the training pictures, the held-out pictures and the classes; raises `InputError` with the mistakes."""
    if not (folder / "train").is_dir():
        classes = _classes(folder)
        train, test = _split(_pictures(folder, classes))
        if not train:
            raise InputError(
                f"found one picture of each class in {folder}, expected more: the first of each is held out"
            )
        return train, test, classes
    held_out = next((folder / name for name in HELD_OUT if (folder / name).is_dir()), None)
    if held_out is None:
        raise InputError(f"found {folder / 'train'} without test or val beside it")
    classes, others = _classes(folder / "train"), _classes(held_out)
    if classes != others:
        odd = sorted(set(classes) ^ set(others))
        raise InputError(f"found classes in one of {folder / 'train'} and {held_out} only: {some(odd)}")
    return _pictures(folder / "train", classes), _pictures(held_out, classes), classes


def _split(listed: Listed) -> tuple[Listed, Listed]:
    train: Listed = []
    test: Listed = []
    seen: Counter[int] = Counter()
    for path, label in listed:
        (train if seen[label] % EVERY else test).append((path, label))
        seen[label] += 1
    return train, test


def _classes(folder: Path) -> list[str]:
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise InputError(f"found {some(classes)} in {folder}, expected a folder for each of two classes or more")
    return classes


def _pictures(folder: Path, classes: Sequence[str]) -> Listed:
    listed = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in ENDINGS
    ]
    there = {label for _, label in listed}
    if empty := [name for label, name in enumerate(classes) if label not in there]:
        raise InputError(f"found no pictures ({', '.join(sorted(ENDINGS))}) of {some(empty)} in {folder}")
    return listed


def picture(path: Path, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Reads a picture as channels × height × width.

    Args:
        path: the file.
        shape: channels, height and width.

    Raises:
        InputError: the file cannot be read as a picture.
    """
    from PIL import Image, ImageOps  # imported here, because only this reader needs it

    channels, height, width = shape
    try:
        with Image.open(path) as file:
            picture = ImageOps.fit(file.convert("L" if channels == 1 else "RGB"), (width, height))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    return np.asarray(picture, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
