"""What every report page and notebook table is made of: hostile text made harmless, tables, the shell of a page.

Everything a memory system, a model or a dataset wrote is hostile here: it is escaped by the template, its control
characters, direction marks and lone surrogates are shown as signs, and a long text is cut with a note of its length.
"""

from __future__ import annotations

import base64
import functools
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "templates"
LONGEST = 600  # characters of a stored text that a report shows


def plain(text: Any, longest: int = LONGEST) -> str:
    """`text` as a line that cannot act: control characters as their pictures (␀), direction marks and lone surrogates
    as ⟨U+202E⟩, and a cut with a note of the whole length. It is not yet escaped for HTML."""
    text = "" if text is None else str(text)
    cut = text[:longest]
    # lines stay lines; everything else that would be invisible, or turn the text around, is shown
    shown = "".join(
        c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else _sign(c) for c in cut
    )
    return shown + (f" … (cut: {len(text):,} characters in all)" if len(text) > longest else "")


def _sign(c: str) -> str:
    if c == "\t":
        return " "
    if ord(c) < 0x20:
        return chr(0x2400 + ord(c))
    return f"⟨U+{ord(c):04X}⟩"


def language_of(text: str) -> str | None:
    """'ja' where a text has kana or kanji, for its lang attribute (so that kanji get Japanese forms)."""
    return "ja" if any("\u3040" <= c <= "\u30ff" or "\u4e00" <= c <= "\u9fff" for c in text[:LONGEST]) else None


def css() -> str:
    """The style of all pages, light and dark."""
    return (HERE / "page.css").read_text(encoding="utf-8")


def font_css(text: str) -> str:
    """A style that brings the Japanese characters of `text` along (IPAex Gothic, cut to them, as WOFF in a data URI),
    so that a page shows Japanese as Japanese also where no Japanese font is installed. Empty where there are none; same
    text, same bytes.
    """
    wanted = "".join(
        sorted({c for c in text if "\u3000" <= c <= "\u30ff" or "\u3400" <= c <= "\u9fff" or "\uff00" <= c <= "\uffef"})
    )
    return _cut_font(wanted) if wanted else ""


@functools.lru_cache(maxsize=8)
def _cut_font(characters: str) -> str:
    import io

    import matplotlib_fontja
    from fontTools import subset
    from fontTools.ttLib import TTFont

    (path,) = sorted(Path(matplotlib_fontja.__file__).parent.rglob("ipaexg.ttf"))
    font = TTFont(path, recalcTimestamp=False, lazy=True)
    options = subset.Options(layout_features=[], name_IDs=[0, 1, 2, 13], notdef_outline=True, hinting=False)
    cutter = subset.Subsetter(options)
    cutter.populate(text=characters)
    cutter.subset(font)
    font.flavor = "woff"
    data = io.BytesIO()
    font.save(data, reorderTables=None)
    uri = "data:font/woff;base64," + base64.b64encode(data.getvalue()).decode()
    return f'@font-face {{ font-family: "Kioku Lab Japanese"; src: url("{uri}") format("woff"); }}\n'


@functools.cache
def environment(folder: str | None = None) -> Any:
    """A Jinja environment that escapes everything, with the filter `text` for what others wrote. It finds templates in
    `folder` (a track's own) and among the shared ones."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    def text(value: Any, longest: int = LONGEST) -> Markup:
        shown = plain(value, longest)
        lang = language_of(shown)
        return Markup("<bdi{}>{}</bdi>").format(Markup(f' lang="{lang}"') if lang else "", escape(shown))

    places = [HERE] if folder is None else [Path(folder), HERE]
    made = Environment(
        loader=FileSystemLoader(places),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["text"] = text
    return made


def table(rows: Sequence[Mapping[str, Any]], longest: int = 160) -> str:
    """Rows with the same keys as an HTML table; every cell is escaped, cut and marked as Japanese where it is."""
    heads = list(rows[0]) if rows else []
    return (
        environment()
        .from_string(
            '<style>{{ css | safe }}</style><div class="kiokulab"><div class="scroll"><table class="left">'
            "<thead><tr>{% for h in heads %}<th>{{ h | text(60) }}</th>{% endfor %}</tr></thead><tbody>"
            "{% for r in rows %}<tr>{% for h in heads %}<td>{{ ('' if r[h] is none else r[h]) | text(longest) }}</td>{% endfor %}</tr>"
            "{% else %}<tr><td>nothing</td></tr>{% endfor %}</tbody></table></div></div>"
        )
        .render(heads=heads, rows=rows, css=css(), longest=longest)
    )


def image(png: bytes, alt: str) -> str:
    """A picture as HTML that needs no other file."""
    return (
        environment()
        .from_string('<img alt="{{ alt }}" style="max-width:100%" src="{{ uri }}">')
        .render(alt=plain(alt, 2000), uri=data_uri(png))
    )


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def document(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page that needs no other file. `sections`: (heading, HTML that is already safe), in order."""
    return with_font(
        environment().get_template("page.html").render(title=plain(title, 200), sections=sections, css=css())
    )


def with_font(html: str) -> str:
    """A rendered page with the Japanese characters it shows brought along, at the mark that its template has for
    them."""
    return html.replace("/* font */", font_css(html), 1)
