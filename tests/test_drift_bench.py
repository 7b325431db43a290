from kiokulab.drift import bench


def test_a_measurement_says_what_was_measured():
    row = bench.measure("mute", size=30)
    assert row["facts"] == 30 and row["score"] == 300 and row["peak_mb"] > 10
    assert {"world_s", "replay_s", "grade_s", "grade_cpu_s"} <= set(row)


def test_without_the_public_world_nothing_is_measured(tmp_path):
    assert bench.public(tmp_path) == []
