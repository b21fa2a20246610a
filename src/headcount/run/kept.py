"""Kept runs: what a report needs of the runs of a sweep, in one Parquet file.

    file         run                       line  text
    config.yaml  model.num_heads=1,seed=1     0  the whole file
    test.hyp.de  model.num_heads=1,seed=1    17  one line of it
    test.hyp.de  model.num_heads=1,seed=2    17  the translation of the same sentence by the next run

Runs translate a sentence alike, so their translations are stored side by side: that takes a third of the space of a
compressed file for each run.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headcount.errors import InputError, reason
from headcount.files import replacing

FILE = "runs.parquet"
SWEEP = ""  # the name under which the files of the sweep itself stand, such as sweep.json
LEVEL = 19  # of zstd
BY_LINE = re.compile(r"\.(hyp|ref|src)\.[^.]+$")  # files with a sentence a line

Runs = dict[str, dict[str, str]]  # the text of files, by run and by path within the folder of the run


def gather(directory: Path, patterns: Iterable[str]) -> dict[str, str]:
    """The text of the files of a folder that match a pattern, by path within it."""
    paths = (path for pattern in patterns for path in directory.glob(pattern))
    return {path.relative_to(directory).as_posix(): path.read_bytes().decode() for path in paths}


def write(path: Path, runs: Mapping[str, Mapping[str, str]]) -> None:
    """Write the files of runs, as `read` returns them."""
    rows = sorted(
        (file.partition(".")[0], line, file, run, text)
        for run, files in runs.items()
        for file, content in files.items()
        for line, text in enumerate(content.split("\n") if BY_LINE.search(file) else [content])
    )
    _, lines, files, names, texts = zip(*rows, strict=True)
    table = pa.table({"file": files, "run": names, "line": pa.array(lines, pa.int32()), "text": texts})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        pq.write_table(table, beside, compression="zstd", compression_level=LEVEL, use_dictionary=["file", "run"])


def read(path: Path) -> Runs:
    """The files of kept runs, each to the byte as it was. Raises InputError for another file."""
    try:
        table = pq.read_table(path, columns=["run", "file", "text"])
        columns = [table[name].to_pylist() for name in ("run", "file", "text")]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a file of kept runs, such as {FILE} ({reason(error)})") from error
    parts: dict[str, dict[str, list[str]]] = {}
    for run, file, text in zip(*columns, strict=True):
        parts.setdefault(run, {}).setdefault(file, []).append(text)
    return {run: {file: "\n".join(texts) for file, texts in files.items()} for run, files in parts.items()}


def unpack(path: Path | str, sweep: Path | str) -> None:
    """Write kept runs to the folder of a sweep, a folder a run: for a report, and to train what is missing.

    Raises InputError for a name that leads out of that folder.
    """
    for run, files in read(Path(path)).items():
        for name, text in files.items():
            target = Path(sweep, run, name)
            if not target.resolve().is_relative_to(Path(sweep).resolve()):
                raise InputError(f"{path}: {run}/{name} leads out of the folder of the runs")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
