"""A document as one HTML page: nothing fetched, light or dark as the reader's system is.

The templates escape every value (Jinja2's autoescape), so names of the trace never become markup. A page
about one trace also contains the tab's page with its data, if that is built. Without scripts, readers see the
document.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tb_gpudiag.report.views.document import WHOLE, WINDOW, Document
from tb_gpudiag.wording.palette import FILLS, PALETTE, css_variables


def document_html(document: Document, content: Mapping[str, Any] | None = None) -> str:
    """A document as one page: its overview, then its reports one after another.

    content: of slices.embedded.embedded, for the interactive page.
    """
    script = interactive_script() if content is not None else None
    page = None
    if script is not None:
        digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        page = Page(_json(content), Markup(script), digest)
    return _template().render(document=document, page=page)


class Page(NamedTuple):
    """The interactive page inside an HTML file."""

    content: Markup  # JSON
    script: Markup
    digest: str  # of the script, for the content security policy


SCRIPT = Path(__file__).parents[2] / "static" / "offline.js"
"""The built page as one script. A checkout has it after `npm run build` in frontend/."""


def interactive_script() -> str | None:
    """Return the script of the interactive page; None if it is not built."""
    try:
        text = SCRIPT.read_text(encoding="utf-8")
    except OSError:
        return None
    # These would end the element, or hide its end. In JavaScript they are in strings only.
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _json(content: Any) -> Markup:
    # Inside a script element, only "<" can end it.
    return Markup(json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tb_gpudiag.report.views"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"WINDOW": WINDOW, "WHOLE": WHOLE}
    environment.globals["css_variables"] = lambda scheme: Markup(css_variables({**PALETTE, **FILLS}, scheme))
    return environment.get_template("page.html.j2")
