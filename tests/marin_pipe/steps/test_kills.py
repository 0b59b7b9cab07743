"""kill -9 of a whole data pipeline at random moments; the bytes are those of a launch that nobody disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PIPELINE = Path(__file__).parents[2] / "corpus_pipeline.py"


def make_files(folder: Path, *, count: int, seed: int) -> str:
    """Text files of random words, with repetitions within and between them."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(2000)] + [
        "the",
        "of",
        "and",
    ] * 300
    folder.mkdir()
    earlier = [" ".join(draw.choices(words, k=40)) + "." for _ in range(50)]
    for number in range(count):
        paragraphs = [
            draw.choice(earlier) if draw.random() < 0.2 else " ".join(draw.choices(words, k=60)) + "."
            for _ in range(400)
        ]
        (folder / f"{number:03d}.txt").write_text("\n\n".join([*paragraphs, "write to me@example.org"]))
    return f"{folder}/*.txt"


def start(root: Path, files: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, PIPELINE, "--root", root, "--files", files]
    return subprocess.Popen(
        list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def committed_files(root: Path) -> dict[str, bytes]:
    """Data files of every committed step, by step and name."""
    found = {}
    for commit in sorted(root.glob("*/commit.json")):
        record = json.loads(commit.read_bytes())
        output = commit.parent / "attempts" / record["attempt"] / "output"
        for file in sorted(path for path in output.rglob("*") if path.is_file()):
            found[f"{commit.parent.name}/{file.relative_to(output)}"] = file.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path: Path, seed: int) -> None:
    files = make_files(tmp_path / "files", count=24, seed=1)
    begun = time.monotonic()
    undisturbed = start(tmp_path / "undisturbed", files)
    output, _ = undisturbed.communicate()
    assert undisturbed.returncode == 0, output.decode()
    duration_s = time.monotonic() - begun
    draw = random.Random(seed)
    kills = 0
    while True:
        process = start(tmp_path / "killed", files)
        try:
            # Moments drawn over the whole run: what earlier launches committed makes later ones reach further.
            output, _ = process.communicate(timeout=draw.uniform(0.5, 0.5 * duration_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            assert kills < 100, "it makes no headway between kills"
            continue
        assert process.returncode == 0, output.decode()
        break
    assert kills >= 3
    expected, found = (committed_files(tmp_path / name) for name in ("undisturbed", "killed"))
    assert len({name.partition("/")[0] for name in expected}) > 15, "the pipeline has more steps than that"
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
