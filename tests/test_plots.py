"""Figures: Japanese as Japanese, the same bytes twice, and labels that cannot break a picture."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from kiokulab import plots

PILLARS = {"remember": 0.9, "replace": 0.0, "forget": 0.5, "tidy": 0.4}
HOSTILE = "記憶<script>alert(1)</script>\x00\u202e$\\frac{1}{0}$\ud800\U0001f600 システム"
SYSTEMS = [
    {"label": "記憶・東京", "index": {"value": 40.0, "low": 30.0, "high": 50.0}, "pillars": PILLARS},
    {
        "label": "null",
        "grey": True,
        "index": {"value": 31.6, "low": 31.6, "high": 31.6, "empty_store": True},
        "pillars": PILLARS,
    },
    {"label": HOSTILE, "index": {"value": None, "low": None, "high": None}, "pillars": {**PILLARS, "replace": None}},
]
FATES = {
    "en-01": {"f01": "held", "f02": "stale"},
    "ja-01": {"f01": "leaked", "f02": "missed"},
    "ja-02": {"f01": "not judged", "f03": "forgotten"},
}


def drawn(name):
    if name == "bars":
        return plots.index_bars(SYSTEMS, note="版 v0.1")
    if name == "fates":
        return plots.fate_map(FATES, title=f"事実の行方 {HOSTILE}")
    if name == "floors":
        return plots.floor_curves(SYSTEMS)
    return plots.cost_curve(
        [{"personas": 10, "seconds": 1.5, "megabytes": 100}, {"personas": 100, "seconds": 15, "megabytes": 120}]
    )


@pytest.mark.parametrize("name", ["bars", "fates", "floors", "cost"])
def test_no_glyph_is_missing_and_the_bytes_repeat(name, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = drawn(name)
    assert one == drawn(name) and one.startswith(b"\x89PNG")
    assert "findfont" not in caplog.text
    assert b"matplotlib" not in one.lower() and b"tIME" not in one and b"Creation" not in one


def test_a_missing_glyph_would_be_noticed():
    plt = plots._pyplot()
    figure, axes = plt.subplots()
    axes.set_title("\u0e01")  # Thai, which the font does not have
    with pytest.warns(UserWarning, match="[Gg]lyph"):
        plots.png(figure)


def test_japanese_is_drawn_and_not_boxes():
    def ink(text):
        plt = plots._pyplot()
        figure, axes = plt.subplots(figsize=(2, 1))
        axes.axis("off")
        axes.text(0.5, 0.5, text, fontsize=30, ha="center", va="center")
        return np.asarray(Image.open(io.BytesIO(plots.png(figure, dpi=60))).convert("L"))

    assert (ink("記憶") != ink("東京")).any() and (ink("記憶") != ink("□□")).any()


def test_labels_are_made_safe():
    label = plots.safe(HOSTILE, 200)
    assert all(c not in label for c in "\x00\u202e\ud800\U0001f600") and label.startswith("記憶") and "□" in label
    assert len(plots.safe("x" * 1_000_000)) == 40 and plots.safe("x" * 50).endswith("…")
    assert plots.safe("a$b$") == r"a\$b\$"


def test_a_thousand_personas_still_make_a_picture():
    image = Image.open(io.BytesIO(plots.fate_map({f"en-{i:04d}": {"f01": "held"} for i in range(1000)})))
    assert max(image.size) < 20000


def test_fates_differ_in_sign_or_lightness_without_colour():
    from matplotlib.colors import to_rgb

    looks = {
        fate: (sign, round(float(np.dot(to_rgb(fill), (0.299, 0.587, 0.114))), 1))
        for fate, (fill, sign, _) in plots.FATES.items()
    }
    assert len(set(looks.values())) == len(looks) and len({sign for sign, _ in looks.values()}) == len(looks)


def test_nothing_to_draw_is_no_crash():
    assert plots.index_bars([]) and plots.fate_map({}) and plots.floor_curves([])
