import json

import pytest
from drift_mini import BASE, WINDOW, mini, record

from kiokulab.drift import arms, ingest
from kiokulab.drift.generate import script_row
from kiokulab.drift.ingest import Bridge, replay
from kiokulab.drift.judge import grade
from kiokulab.drift.params import DriftParams, default_systems, describe_system
from kiokulab.drift.script import load_transcript, transcript_value
from kiokulab.errors import InputError, UnitsFailed
from kiokulab.files import write_jsonl
from kiokulab.systems.base import Hit, Memory, Results, System


class Shelf(System):
    """A store of texts behind the adapter contract: finds what shares a word, forgets by id."""

    name, feeds, dates = "shelf", "utterance", "native"
    capabilities = frozenset({"search", "forget"})

    def __init__(self, rewrite=None):
        super().__init__()
        self.rows, self.calls, self.rewrite = {}, [], rewrite or (lambda text: text)

    def ingest(self, item, when):
        assert not hasattr(item, "key") and "f0" not in json.dumps(item.id)
        self.calls.append((type(item).__name__, when))
        self.rows[f"m{len(self.calls)}"] = self.rewrite(item.turn.text)

    def settle(self, timeout):
        self.calls.append(("settle", timeout))

    def dump(self):
        return [Memory(name, text) for name, text in self.rows.items()]

    def forget(self, selector):
        return sum(self.rows.pop(name, None) is not None for name in selector["ids"])

    def search(self, query, k, when=None):
        words = set(query.split())
        found = [(name, text) for name, text in self.rows.items() if words & set(text.split())]
        return Results([Hit(text, name, 0.5, "2026-08-31T12:00:00+00:00") for name, text in found] * 3)


def graded(system, script=None):
    script = script or mini()
    transcript = replay(script, Bridge(system, system.name, BASE))
    return transcript, grade(script, transcript)


def test_a_plain_store_is_asked_what_it_can_and_the_rest_is_not_applicable():
    transcript, result = graded(Shelf())
    assert not any(transcript.capabilities.values())
    na = {family["family"]: family.get("na") for family in result.receipt["families"]}
    assert na["drift"] and na["contradiction"] and na["temporal"] and na["authority"] and not na["currency"]
    assert transcript.suspects["S"] is None and transcript.lineages["L1"] is None and transcript.standing_tokens == 0
    assert {hit.key for hit in transcript.recalls["R1"].hits} == {"s-f0", "f0"} and transcript.recalls["R1"].hits[
        0
    ].created_at == BASE - 43_200


def test_the_harness_cuts_to_k_and_gives_dates_and_settles():
    system = Shelf()
    transcript, _ = graded(system)
    assert len(transcript.recalls["R4"].hits) <= 10
    assert (
        system.calls[0] == ("Utterance", "2026-09-01T00:00:00+00:00")
        and [c[0] for c in system.calls].count("settle") == 2
    )


def test_supersede_release_and_purge_go_by_the_systems_own_forget():
    transcript, result = graded(Shelf())
    assert "g0" not in {hit.key for hit in transcript.recalls["R3"].hits}
    assert {task.id: task.passed for task in result.tasks}["R6"] is True and {
        task.id: task.passed for task in result.tasks
    }["R7"] is True


def test_a_store_that_cannot_delete_keeps_the_note_and_fails_deletion():
    class Keeper(Shelf):
        capabilities = frozenset({"search"})

    _, result = graded(Keeper())
    passed = {task.id: task.passed for task in result.tasks}
    assert passed["R6"] is False and passed["R7"] is False and passed["R3"] is False


def test_what_a_system_rewords_has_no_key_and_a_kept_title_line_has_one():
    _, reworded = graded(Shelf(lambda text: "noted: " + " ".join(text.split())))
    assert reworded.receipt["families"][0]["passed"] == 0
    transcript, _ = graded(Shelf(lambda text: f"Date: 2026-08-31\n{text}"))
    assert {hit.key for hit in transcript.recalls["R1"].hits} == {"s-f0", "f0"}


def test_a_system_that_fails_stops_the_replay():
    class Broken(Shelf):
        def search(self, query, k, when=None):
            raise RuntimeError("the index is gone")

    with pytest.raises(RuntimeError, match="the index is gone"):
        graded(Broken())


def test_a_system_with_everything_is_asked_by_its_own_calls():
    class Full(Shelf):
        name = "full"
        capabilities = frozenset(
            {
                "search",
                "forget",
                "link",
                "supersede",
                "release",
                "purge",
                "suspects",
                "lineage",
                "temporal",
                "recall_path",
                "standing_tokens",
                "trace",
                "verdict",
                "write_check",
                "endorse_user",
            }
        )

        def link(self, a, b, verb):
            self.calls.append(("link", a, b, verb))

        def supersede(self, old, new):
            self.calls.append(("supersede", old))

        def release(self, key, reason):
            self.calls.append(("release", key))

        def purge(self, key):
            self.calls.append(("purge", key))

        def suspects(self):
            return [{"a": "s-f0", "b": "f0", "hint": "contradiction"}, {"a": "who", "b": "f0"}]

        def lineage(self, key):
            return ["g0", key]

        def recall_path(self, path, k):
            return Results([Hit("pump uses 3 bar", "m2", meta={"key": "f0", "neighbors": ["f1"]})])

        def search_window(self, query, k, after, before):
            self.calls.append(("window", after, before))
            return Results([Hit("pump uses 3 bar", meta={"key": "f0"}, score=float("nan"))], declined=True)

        def standing_tokens(self):
            return 40

    system = Full()
    transcript, result = graded(system)
    passed = {task.id: task.passed for task in result.tasks}
    assert passed["D0"] and passed["L1"] and passed["P1"] and passed["R5"] and transcript.standing_tokens == 40
    assert ("window", "2026-08-31T00:00:00+00:00", "2026-09-02T00:00:00+00:00") in system.calls and WINDOW[
        "after"
    ] == BASE - 86_400
    assert ("link", "f0", "f1", "because") in system.calls and ("release", "f1") in system.calls
    assert transcript.recalls["R5"].hits[0].score is None and transcript.recalls["P1"].hits[0].neighbors == ["f1"]


def run_folder(tmp_path, script=None):
    write_jsonl(tmp_path / "dataset.jsonl", [script_row(script or mini())])
    return tmp_path


@pytest.mark.parametrize("name", ["grep", "whole", "oracle", "tfidf", "mute"])
def test_rows_of_a_run_give_the_transcript_back(tmp_path, name):
    script = mini()
    made = replay(script, arms.make(name, script))
    write_jsonl(tmp_path / "contexts.jsonl", ingest.transcript_rows("mini", made))
    back = ingest.read_transcripts(tmp_path)["mini"]
    made.timing = {}
    assert grade(script, back) == grade(script, made) and (transcript_value(back)["replies"] != []) is True
    assert {name: [hit.text for hit in reply.hits] for name, reply in back.recalls.items()} == {
        name: [hit.text for hit in reply.hits] for name, reply in made.recalls.items()
    }


def test_a_run_of_an_arm_and_its_export_in_the_public_format(tmp_path):
    folder = run_folder(tmp_path)
    rows = ingest.run(folder, DriftParams(system="grep", jobs=1))
    assert rows[0]["status"] == "ok"
    ingest.export(folder, "mini", tmp_path / "out.json")
    transcript = load_transcript(tmp_path / "out.json")
    assert transcript.arm == "grep" and transcript.timing["recall"]["count"] == 7
    assert (
        grade(mini(), transcript).receipt["passed"]
        == grade(mini(), replay(mini(), arms.make("grep", mini()))).receipt["passed"]
    )


def test_a_transcript_of_somebody_else_is_graded(tmp_path):
    script = mini()
    foreign = transcript_value(replay(script, arms.make("tfidf", script))) | {"arm": "somebody-1.0", "note": "extra"}
    foreign["timing"]["purge"]["count"] = 10**12  # whatever a file claims, nothing is made a trillion times of it
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(foreign))
    folder = run_folder(tmp_path)
    ingest.run(folder, DriftParams(system="transcript", transcript=str(path), jobs=1))
    back = ingest.read_transcripts(folder)["mini"]
    assert (
        back.arm == "somebody-1.0"
        and grade(script, back).receipt["score"] == grade(script, load_transcript(path)).receipt["score"]
    )
    assert ingest.read_timing(folder)["mini"]["recall"]["count"] == 7


def test_a_transcript_of_another_script_fails_its_world_and_says_why(tmp_path):
    script = mini(seed=2)
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(transcript_value(replay(script, arms.make("mute", script)))))
    with pytest.raises(UnitsFailed, match="answers the script"):
        ingest.run(run_folder(tmp_path), DriftParams(system="transcript", transcript=str(path), jobs=1))


def test_parameters_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(InputError, match="no transcript is given"):
        ingest.run(run_folder(tmp_path), DriftParams(system="transcript"))
    with pytest.raises(InputError, match="has no settings"):
        ingest.run(run_folder(tmp_path), DriftParams(system="grep", settings={"depth": 3}))
    with pytest.raises(InputError, match="parameter 'script' = 'none.json'.*no such file"):
        DriftParams.checked({"script": "none.json"})
    with pytest.raises(InputError, match="arms of this track"):
        describe_system("no-such-memory-system")


def test_a_file_stands_for_its_content_in_the_runs_identity(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(mini().text())
    one, two = (DriftParams(script=str(tmp_path / name)).deciding() for name in ("a.json", "b.json"))
    assert one == two and len(one["script"]) == 64


def transcript_file(tmp_path, script, name="t.json"):
    (tmp_path / name).write_text(json.dumps(transcript_value(replay(script, arms.make("mute", script)))))
    (tmp_path / f"world-{name}").write_text(script.text())
    return {"script": str(tmp_path / f"world-{name}"), "transcript": str(tmp_path / name)}


def test_a_transcript_decides_nothing_for_an_anchor_beside_it(tmp_path):
    files = transcript_file(tmp_path, mini())
    assert (
        DriftParams(system="mute", **files).deciding() == DriftParams(system="mute", script=files["script"]).deciding()
    )
    assert DriftParams(system="transcript", **files).deciding()["transcript"]
    assert default_systems(DriftParams(**files))[0] == "transcript" and "tfidf" in default_systems(DriftParams())


def test_bad_files_are_told_before_anything_starts(tmp_path):
    files, others = transcript_file(tmp_path, mini()), transcript_file(tmp_path, mini(seed=2), "other.json")
    with pytest.raises(InputError, match="the transcript answers the script"):
        DriftParams(system="transcript", script=files["script"], transcript=others["transcript"]).deciding()
    with pytest.raises(InputError, match="the field 'spec' is missing"):
        DriftParams(script=files["transcript"]).deciding()
    with pytest.raises(InputError, match="no script is given"):
        DriftParams(system="transcript", transcript=files["transcript"]).deciding()


def test_arms_are_described_before_systems_of_the_same_name():
    from kiokulab.drift.params import ARM_NAMES

    assert set(ARM_NAMES) == set(arms.ARMS)
    assert describe_system("vector")["source_digest"] == describe_system("grep")["source_digest"]
    assert describe_system("store-everything")["name"] == "store-everything"


def test_two_notes_with_one_text_are_told_apart_by_time():
    bridge = Bridge(Shelf(), "shelf", BASE)
    bridge.inscribe(record("a", "same title"), "import")
    bridge.purge("a")
    bridge.inscribe(record("z-a", "same title"), "write")
    assert bridge.key_of("same title\nA body.") == "z-a"
