"""Notebooks that are no step of a run: executed without a trace of when, and turned into pages without a script."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kiokulab.errors import KiokuLabError
from kiokulab.files import write_atomic

TAGS = {
    "a",
    "abbr",
    "b",
    "bdi",
    "br",
    "caption",
    "code",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "small",
    "span",
    "strong",
    "summary",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
}
ATTRIBUTES = {
    "*": [
        "class",
        "lang",
        "id",
        "title",
        "role",
        "scope",
        "colspan",
        "rowspan",
        "hidden",
        "tabindex",
        "aria-label",
        "aria-hidden",
        "aria-describedby",
        "style",
    ],
    "img": ["src", "alt"],
    "a": ["href"],
}
STYLES = ["width", "left", "max-width", "white-space", "text-align"]


def execute(
    source: str | Path,
    target: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    shown: bool = True,
    timeout: int = 600,
    cwd: str | Path | None = None,
) -> dict:
    """Run the notebook `source` in a kernel of its own, write the executed copy to `target` and return it. Values of
    `parameters` are put after the cell tagged `parameters`; with `shown` false no cell of them stays in the copy, so
    that the same content is the same bytes wherever it lies. Raises KiokuLabError naming the cell that failed; the copy
    is then there."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    from kiokulab.kernels import LIGHT, Kernel

    notebook = nbformat.read(str(source), as_version=4)
    injected = None
    if parameters:
        place = next((n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])), -1)
        injected = nbformat.v4.new_code_cell(
            "\n".join(f"{name} = {value!r}" for name, value in parameters.items()),
            metadata={"tags": ["injected-parameters"]},
        )
        injected["id"] = "injected"
        notebook.cells.insert(place + 1, injected)
    failure = None
    with tempfile.TemporaryDirectory() as place:  # this Python's kernel, over sockets that no other program can take
        client = NotebookClient(
            notebook,
            timeout=timeout,
            record_timing=False,
            km=Kernel(Path(place), LIGHT),
            resources={"metadata": {"path": str(cwd or Path(source).resolve().parent)}},
        )
        try:
            client.execute(cleanup_kc=True)  # the kernel is ours although the manager is given
        except CellExecutionError as error:
            number = next(
                (
                    n
                    for n, cell in enumerate(notebook.cells, 1)
                    if any(o.output_type == "error" for o in cell.get("outputs", []))
                ),
                0,
            )
            failure = KiokuLabError(f"{Path(source).name}, cell {number}: {error.ename}: {error.evalue}")
    if injected is not None and not shown:
        notebook.cells.remove(injected)
    result = json.loads(nbformat.writes(notebook))
    result["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    from kiokulab.receipts import notebook_text

    write_atomic(target, notebook_text(result))
    if failure is not None:
        raise failure
    return result


# --- as a page ----------------------------------------------------------------------------------------------------


def to_html(notebook: Mapping[str, Any]) -> str:
    """The cells of an executed notebook as HTML that cannot act: markdown rendered, code coloured by class, outputs
    cleaned to a list of harmless tags (whoever wrote them), pictures as data with their alt texts."""
    return "\n".join(_cell(cell) for cell in notebook["cells"])


def _cell(cell: Mapping[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        import mistune

        return clean(str(mistune.create_markdown(escape=True, plugins=["table"])(source)))
    if cell["cell_type"] != "code":
        return f"<pre>{_plain(source)}</pre>"
    outputs = "\n".join(_output(output) for output in cell.get("outputs", []))
    count = cell.get("execution_count")
    return (
        f'<details class="code"{"" if outputs else " open"}><summary>code{f" [{count}]" if count else ""}</summary><pre>{_coloured(source)}</pre></details>'
        f'<div class="output">{outputs}</div>'
    )


def _output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"<pre>{_plain(''.join(output['text']))}</pre>"
    if output["output_type"] == "error":
        return f"<pre class='box error'>{_plain(output.get('ename', ''))}: {_plain(output.get('evalue', ''))}</pre>"
    data = output.get("data", {})
    if "text/html" in data:
        return clean("".join(data["text/html"]))
    if "image/png" in data:
        words = "".join(data.get("text/plain", "")) or "figure"
        return clean(
            f'<img alt="{_plain(words)}" src="data:image/png;base64,{"".join("".join(data["image/png"]).split())}">'
        )
    return f"<pre>{_plain(''.join(data.get('text/plain', '')))}</pre>"


def _plain(text: str) -> str:
    from markupsafe import escape

    from kiokulab.page import plain

    return str(escape(plain(text, 200_000)))


def _coloured(source: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    from kiokulab.page import plain

    return highlight(plain(source, 200_000), PythonLexer(), HtmlFormatter(nowrap=True))


def clean(html: str) -> str:
    """HTML with harmless tags, attributes and styles alone; a picture only as data, a link only inside the site or to
    https."""
    import bleach
    from bleach.css_sanitizer import CSSSanitizer

    def allowed(tag: str, name: str, value: str) -> bool:
        if name == "src":
            return tag == "img" and value.startswith("data:image/png;base64,")
        if name == "href":
            return tag == "a" and re.match(r"(https://|#|[\w./-]+$)", value) is not None
        return name in ATTRIBUTES["*"] or name in ATTRIBUTES.get(tag, ())

    without = re.sub(r"<(style|script)\b.*?</\1\s*>", "", html, flags=re.S | re.I)
    return bleach.clean(
        without,
        tags=TAGS,
        attributes=allowed,
        protocols={"https", "data"},
        css_sanitizer=CSSSanitizer(allowed_css_properties=STYLES),
        strip=True,
    )
