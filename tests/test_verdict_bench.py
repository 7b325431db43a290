import json

from kiokulab.verdict import bench, dataset


def test_the_files_of_the_bench_are_in_the_official_shape_and_as_large_as_asked(tmp_path):
    path = bench.make_file(tmp_path / "f.json", 2.0, 20, 6, 4)
    assert 1.6e6 < path.stat().st_size < 2.4e6
    rows = dataset.manifest(path)
    assert len(rows) == 20 and {row["sessions"] for row in rows} == {6} and sum(row["abstention"] for row in rows) == 2
    assert path.read_bytes() == bench.make_file(tmp_path / "g.json", 2.0, 20, 6, 4).read_bytes()


def test_a_measured_process_tells_its_figures_and_its_failure():
    found = bench._here("found = {'n': 3}")
    assert found["n"] == 3 and found["peak_mb"] > 1 and found["seconds"] > 0
    try:
        bench._here("raise ValueError('it broke')")
    except SystemExit as error:
        assert "it broke" in str(error)
    else:
        raise AssertionError("a failed measurement passed for one")
    json.dumps(found)
