"""Kept runs: a Parquet file that gives every file back as it was."""

import pytest

from headcount.errors import InputError
from headcount.run.kept import gather, read, unpack, write

RUNS = {
    "": {"sweep.json": "{}\n"},
    "seed=1,model.num_heads=1": {"config.yaml": "seed: 1\n", "test.hyp.de": "eins\n\nDer Hund\u2028bellt\r\n"},
    "seed=2,model.num_heads=1": {
        "config.yaml": "",
        "test.hyp.de": "eins\nkein Ende der Zeile",
        "logs/metrics.csv": "a,b\n",
    },
}


def test_every_file_comes_back_to_the_byte(tmp_path):
    write(tmp_path / "new" / "runs.parquet", RUNS)
    assert read(tmp_path / "new" / "runs.parquet") == RUNS
    unpack(tmp_path / "new" / "runs.parquet", tmp_path / "sweep")
    for run, files in RUNS.items():
        assert gather(tmp_path / "sweep" / run, files) == files


def test_other_files_and_names_that_lead_out_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"file: not a file of kept runs, such as runs\.parquet"):
        read(tmp_path / "file")
    write(tmp_path / "runs.parquet", {"..": {"config.yaml": ""}})
    with pytest.raises(InputError, match=r"\.\./config\.yaml leads out"):
        unpack(tmp_path / "runs.parquet", tmp_path / "sweep")
