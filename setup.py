"""What pyproject.toml cannot say: the description on PyPI, where links of README.md into this repository are dead."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]*)\)")


def description(readme: str, repository: str | None, version: str) -> str:
    """Returns README.md for PyPI.

    Args:
        readme: its text.
        repository: the address of the repository; None: it has none yet, so links into it become plain text, and
            images disappear.
        version: the version, whose tag links lead to.

    >>> print(description("![chart](docs/a.png)See [trust](docs/trust.md#limits).", None, "1.0"))
    See trust.
    >>> print(description("See [trust](docs/trust.md#limits).", "https://example.org/us/it", "1.0"))
    See [trust](https://example.org/us/it/blob/v1.0/docs/trust.md#limits).
    """

    def absolute(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        if repository is None:
            return "" if image else text
        return f"{image}[{text}]({repository}/{'raw' if image else 'blob'}/v{version}/{target})"

    return LINK.sub(absolute, readme)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=description(
            (HERE / "README.md").read_text(encoding="utf-8"),
            project.get("urls", {}).get("Repository"),
            project["version"],
        ),
        long_description_content_type="text/markdown",
    )
