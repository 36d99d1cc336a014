"""The hooks that MkDocs calls, see `hooks` in mkdocs.yml: adds generated pages, and adapts links of written ones.

Rules of this file:

* Pages in docs/ are written for readers on a code host: a link may lead to any file of the repository. In the site,
  such a file has a page of its own below `source/`.
* What a page says about the code is generated when the site is built. Nothing generated is stored in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs.site_build import (  # noqa: E402  (needs the path above)
    api_pages,
    command_page,
    device_page,
    link_page,
    notebook_page,
    record_page,
    topology_page,
)
from docs.site_build.claim_tables import filled  # noqa: E402
from docs.site_build.links import adapted, linked_files  # noqa: E402
from docs.site_build.source_pages import source_page  # noqa: E402

MOVED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
NOTEBOOK = {"notebook.md": "docs/tutorial.ipynb"}
"""pages of the site that are files elsewhere in the repository"""


def generated() -> dict[str, str | bytes]:
    """Returns the content of every generated page and picture by its path in the site."""
    return {
        "notebook.md": notebook_page.page(),
        "reference/commands.md": command_page.page(),
        "reference/devices.md": device_page.page(),
        "reference/links-and-storage.md": link_page.page(),
        "reference/records.md": record_page.page(),
        **topology_page.pages(),
        **api_pages.pages(),
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the parts of the navigation that follow from the code: methods and packages.

    Args:
        config: MkDocs's configuration.
    """
    from paceline.algorithms import METHODS

    (reference,) = (each["Reference"] for each in config.nav or () if "Reference" in each)
    for entry in reference:
        if isinstance(entry, dict) and "Methods" in entry:
            entry["Methods"] = [f"methods/{name}.md" for name in METHODS]
        if isinstance(entry, dict) and "Python API" in entry:
            entry["Python API"] = [
                "reference/api.md",
                *({name: f"reference/api/{name}.md"} for name in api_pages.PACKAGES),
            ]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the generated pages, those of the top folder, and a page for each file outside docs/ that a page links to.

    Args:
        files: the files of docs/.
        config: MkDocs's configuration.
    """
    for path, content in generated().items():
        files.append(File.generated(config, path, content=content))
    for page, origin in MOVED.items():
        files.append(File.generated(config, page, content=(ROOT / origin).read_text(encoding="utf-8")))
    for path in sorted(linked_files(ROOT)):
        files.append(File.generated(config, f"source/{path}.md", content=source_page(ROOT / path, path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Fills in the tables of claims of a page, and adapts its links to the site.

    Args:
        markdown: the text of the page.
        page: the page.
    """
    path = page.file.src_uri
    if path.startswith(("source/", "reference/")):
        return markdown
    return adapted(filled(markdown), path, MOVED | NOTEBOOK)


def on_page_context(context: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Removes the link to edit a page: generated pages have no file.

    Args:
        context: the variables of the template.
    """
    context["page"].edit_url = None
    return context
