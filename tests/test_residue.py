"""What is left on the disk: planted in every form that is promised, and not found where it is not."""

import gzip
import io
import json
import os
import sqlite3
import subprocess
import zipfile

import pytest
import zstandard

from kiokulab.kioku import residue
from kiokulab.kioku.records import Fact, Persona, Question, SessionRecord, Surface, TurnLabel, Version

SECRET = "My dog is called Biscuit, and he is seven."
GEHEIM = "愛犬の名前はビスケットで、もう七歳です。"
TEXTS = {
    "forgotten": {"f01": [SECRET], "f02": [GEHEIM], "f03": ["I never was in the file at all."]},
    "replaced": {"f04": []},
}


def found(folder):
    return residue.scan(folder, TEXTS)["forgotten"]["found"]


def sqlite_file(path, *, deleted=False, wal=False, utf16=False, long=False):
    connection = sqlite3.connect(path)
    if utf16:
        connection.execute("pragma encoding = 'UTF-16le'")
    connection.execute("pragma secure_delete = off")
    if wal:
        connection.execute("pragma journal_mode = wal")
    connection.execute('create table "my ""notes""" (text)')
    connection.execute("create table filler (text)")
    pad = "x" * 4050 if long else ""  # so that the text lies across the border of two pages
    connection.executemany('insert into "my ""notes""" values (?)', [(pad + SECRET + pad,), (pad + GEHEIM + pad,)])
    connection.commit()
    if deleted:
        connection.execute('delete from "my ""notes"""')
        connection.commit()
    return connection


def zipped(data):
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("folder/note.txt", data)
        return buffer.getvalue()


BOTH = f"noise {SECRET} noise {GEHEIM} noise"
FORMS = {
    "utf8.txt": (BOTH.encode(), "txt"),
    "utf16le.bin": (b"\x01" + BOTH.encode("utf-16-le"), "bin"),
    "utf16be.bin": (BOTH.encode("utf-16-be"), "bin"),
    "escaped.json": (json.dumps({"t": BOTH}).encode(), "json"),
    "upper_escapes.json": (
        json.dumps({"t": BOTH}).replace("\\u6", "\\u6").upper().replace("\\U", "\\u").encode(),
        "json",
    ),
    "case_width_space.md": (BOTH.upper().replace("ビスケット", "ﾋﾞｽｹｯﾄ").replace(" ", "\n  ").encode(), "md"),
    "after_garbage": (b"\xff\xfe\x80\xe3" * 100 + BOTH.encode() + b"\x80", "no suffix"),
    "a.gz": (gzip.compress(BOTH.encode()), "gzip"),
    "two_members.gz": (gzip.compress(b"first") + gzip.compress(BOTH.encode()), "gzip"),
    "gzip_inside.dat": (b"header" + gzip.compress(BOTH.encode()) + b"trailer", "dat"),
    "a.zst": (zstandard.compress(BOTH.encode()), "zstd"),
    "zstd_inside.dat": (
        b"header" + zstandard.compress(b"x" * 9) + b"--" + zstandard.compress(BOTH.encode()) + b"trailer",
        "dat",
    ),
    "gzip_in_zstd.zst": (zstandard.compress(gzip.compress(BOTH.encode())), "zstd"),
    "a.zip": (zipped(BOTH), "zip"),
    "gzip_in_zip.zip": (zipped(gzip.compress(BOTH.encode())), "zip"),
    "cut_off.gz": (gzip.compress(BOTH.encode() + os.urandom(5000))[:-2000], "gzip"),
}


@pytest.mark.parametrize("name", FORMS)
def test_planted_content_is_found_and_its_file_kind_named(tmp_path, name):
    data, kind = FORMS[name]
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / name).write_bytes(data)
    assert found(tmp_path) == {"f01": [kind], "f02": [kind]}


@pytest.mark.parametrize(
    "options",
    [{}, {"deleted": True}, {"wal": True}, {"utf16": True}, {"long": True}, {"utf16": True, "long": True}],
    ids=str,
)
def test_sqlite_rows_free_pages_wal_and_overflow_pages(tmp_path, options):
    connection = sqlite_file(tmp_path / "store.db", **options)
    try:
        kinds = found(tmp_path)
    finally:
        connection.close()
    assert set(kinds) == {"f01", "f02"}
    assert ("sqlite-wal" in kinds["f01"]) == ("wal" in options)


def test_packed_cell_of_a_database_is_unpacked(tmp_path):
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("create table t (b blob)")
    packed = gzip.compress(os.urandom(9000) + BOTH.encode())  # over several pages: not in one piece in the file
    connection.execute("insert into t values (?)", (packed,))
    connection.commit()
    connection.close()
    assert set(found(tmp_path)) == {"f01", "f02"}


def test_nothing_is_found_where_nothing_is(tmp_path):
    (tmp_path / "near.txt").write_text("My dog is called Biscuit, and he is eight. 愛犬の名前はビスケットです。")
    (tmp_path / "empty").write_bytes(b"")
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("create table t (x)")
    connection.close()
    result = residue.scan(tmp_path, TEXTS)
    assert result["forgotten"] == {"n": 3, "found": {}, "not_searchable": []}
    assert result["replaced"] == {"n": 0, "found": {}, "not_searchable": ["f04"]}
    assert result["files"] == 3 and result["warnings"] == []


def test_a_border_between_blocks_hides_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(residue, "BLOCK", 512)
    for offset in range(470, 516, 3):
        (tmp_path / f"{offset}.bin").write_bytes(b"." * offset + BOTH.encode("utf-16-le") + b"." * 300)
        (tmp_path / f"{offset}.gz").write_bytes(gzip.compress(b"." * offset + json.dumps(BOTH).encode() + b"." * 300))
    result = residue.scan(tmp_path, TEXTS)
    assert result["forgotten"]["found"] == {"f01": ["bin", "gzip"], "f02": ["bin", "gzip"]}
    for path in tmp_path.iterdir():
        (tmp_path / "one").mkdir(exist_ok=True)
        if path.is_file():
            path.rename(tmp_path / "one" / path.name)
            assert set(found(tmp_path / "one")) == {"f01", "f02"}, path.name
            (tmp_path / "one" / path.name).unlink()


def test_damaged_and_lying_files_are_survived_and_said(tmp_path):
    (tmp_path / "not.gz").write_bytes(b"\x1f\x8b\x08" + os.urandom(500) + SECRET.encode())
    (tmp_path / "not.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 500)
    (tmp_path / "not.zip").write_bytes(b"PK\x03\x04" + b"\x00" * 500)
    (tmp_path / "not.db").write_bytes(b"SQLite format 3\0" + b"\x07" * 5000 + GEHEIM.encode())
    os.symlink("/etc/passwd", tmp_path / "link")
    result = residue.scan(tmp_path, TEXTS)
    assert result["forgotten"]["found"] == {"f01": ["gzip"], "f02": ["sqlite"]}
    assert result["files"] == 4 and len(result["warnings"]) == 2


def test_a_bomb_is_read_up_to_the_limit_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(residue, "LARGEST_MEMBER", 1 << 22)
    (tmp_path / "bomb.zst").write_bytes(zstandard.compress(bytes(64 << 20)))
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    assert len(residue.scan(tmp_path, TEXTS)["warnings"]) == 2


def test_merge_counts_what_was_there_at_either_time():
    one = {
        "forgotten": {"n": 2, "found": {"f01": ["sqlite-wal"]}, "not_searchable": []},
        "replaced": {"n": 0, "found": {}, "not_searchable": []},
        "files": 2,
        "bytes": 9,
        "warnings": ["a"],
    }
    other = {
        **one,
        "forgotten": {"n": 2, "found": {"f01": ["sqlite"], "f02": ["txt"]}, "not_searchable": []},
        "files": 1,
        "warnings": ["a", "b"],
    }
    merged = residue.merge(one, other)
    assert merged["forgotten"]["found"] == {"f01": ["sqlite", "sqlite-wal"], "f02": ["txt"]}
    assert merged["files"] == 2 and merged["warnings"] == ["a", "b"]


# --- what is looked for -----------------------------------------------------------------------------------------


def version(n, text, start, end, value):
    return Version(n=n, text=text, valid_from=start, valid_to=end, surface=Surface(anchors=["x"], values=[[value]]))


def fact(id, versions, change="none", forget=None, kind=None):
    return Fact(
        id=id,
        slot=id,
        versions=versions,
        change=change,
        forget=forget,
        forget_kind=kind,
        question=Question(text="?", answer="!", accepted=["!"]),
    )


def turn(text, states=(), kind="fact", of=None):
    return TurnLabel(role="user", text=text, states=list(states), kind=kind, of=of)


def test_contents_are_old_and_forgotten_texts_and_never_current_ones():
    persona = Persona(
        id="en-01",
        language="en",
        name="Ann",
        facts=[
            fact(
                "f01",
                [version(1, "Ann's dog is called Biscuit.", "s01", None, "Biscuit")],
                forget="s03",
                kind="restates",
            ),
            fact(
                "f02",
                [
                    version(1, "Ann pays 850 dollars.", "s01", "s02", "850"),
                    version(2, "Ann pays 920 dollars.", "s02", None, "920"),
                ],
                "full",
            ),
            fact("f03", [version(1, "Ann likes tea.", "s01", None, "tea")], forget="s03", kind="names_topic"),
            fact("f04", [version(1, "Ann likes tea. A lot.", "s01", None, "tea")]),
        ],
        sessions=[
            SessionRecord(
                id="s01",
                date="2025-01-01T10:00:00+00:00",
                turns=[
                    turn("What a day. I call my dog Biscuit. Fun!", ["f01.1"]),
                    turn("I pay 850 for the flat.", ["f02.1"]),
                    turn("Tea is what I like most.", ["f03.1", "f04.1"]),
                ],
            ),
            SessionRecord(
                id="s02", date="2025-01-02T10:00:00+00:00", turns=[turn("Now I pay 920.", ["f02.2"], "change", "f02")]
            ),
            SessionRecord(
                id="s03",
                date="2025-01-03T10:00:00+00:00",
                turns=[
                    turn("Forget that my dog is Biscuit.", (), "forget", "f01"),
                    turn("Forget what I drink.", (), "forget", "f03"),
                ],
            ),
        ],
    )
    pytest.importorskip("kiokulab.text")
    texts = residue.contents(persona)
    assert texts["forgotten"]["f01"] == [
        "Ann's dog is called Biscuit.",
        "Forget that my dog is Biscuit.",
        "I call my dog Biscuit.",
        "What a day. I call my dog Biscuit. Fun!",
    ]
    assert texts["replaced"] == {"f02": ["Ann pays 850 dollars.", "I pay 850 for the flat."]}
    assert texts["forgotten"]["f03"] == []  # all its texts lie inside what may be kept


def test_what_lies_beside_the_store_is_searched_and_named(tmp_path):
    unit = tmp_path / "en-01-raw"
    for name in ("store", "home/.cache/app", "tmp"):
        (unit / name).mkdir(parents=True)
    (unit / "home" / ".cache" / "app" / "trace.json").write_text(json.dumps({"t": SECRET}))
    (unit / "tmp" / "half.gz").write_bytes(gzip.compress(GEHEIM.encode()))
    (unit / "worker.log").write_text(f"DEBUG stored {SECRET}\n")
    (unit / "store.lock").write_text(SECRET)  # the kit's own, and no text of a system's
    assert found(unit / "store") == {"f01": ["home: json", "worker: log"], "f02": ["tmp: gzip"]}
    assert residue.scan(unit / "store", TEXTS)["files"] == 3
    assert found(unit / "home") == {"f01": ["json"]}, "any other folder stands for itself"


def test_a_home_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "note.txt").write_text(SECRET)
    unit = tmp_path / "unit"
    (unit / "store").mkdir(parents=True)
    (unit / "home").symlink_to(tmp_path / "elsewhere")
    assert found(unit / "store") == {}


@pytest.mark.parametrize(
    "path, kind",
    [
        ("project/.brv/review-backups/1/swim.md", "review backup"),
        ("data/projects/p/curate-log/cur-1.json", "task log"),
        ("data/projects/p/task-history/1.json", "task log"),
        ("kuzu.wal", "wal"),
        ("server.log", "log"),
        ("logs/server.log.1", "log"),
        ("pg/pg_wal/000000010000000000000001", "postgres wal"),
        ("pg/base/16384/2619", "postgres table"),
        ("notes.md", "md"),
        ("catalog", "no suffix"),
    ],
)
def test_files_are_named_by_what_they_are_for(tmp_path, path, kind):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(SECRET)
    assert found(tmp_path) == {"f01": [kind]}


def test_history_and_segments_are_named_and_their_rows_are_read(tmp_path):
    (tmp_path / "qdrant" / "collection" / "memories").mkdir(parents=True)
    for path in ("history.db", "qdrant/collection/memories/storage.sqlite"):
        sqlite_file(tmp_path / path, long=True).close()
    assert found(tmp_path)["f01"] == ["qdrant segment", "sqlite history"]


def test_what_was_taken_out_of_a_note_is_found_in_the_history_that_git_keeps(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    for text in (f"# Notes\n{SECRET}\n", "# Notes\n"):
        (tmp_path / "notes.md").write_text(text)
        git("add", "notes.md")
        git("commit", "-q", "-m", "a note")
    assert found(tmp_path) == {"f01": ["git object"]}
    broken = tmp_path / ".git" / "objects" / "00" / ("0" * 38)
    broken.parent.mkdir()
    broken.write_bytes(b"x\x01no zlib at all")
    assert found(tmp_path) == {"f01": ["git object"]}
