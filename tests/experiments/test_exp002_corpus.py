"""The data experiment: what its report says of tokens is what the stores hold, and a threshold reruns only its part."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str, root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "experiments/exp002_corpus.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "MARIN_PIPE_ROOT": str(root), "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'lib'}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_from_text_to_a_report(tmp_path: Path) -> None:
    report = Path(run("--vocab_size", "2048", root=tmp_path).split()[-1]).read_text()
    assert "* speeches: 249 documents" in report, "as many as the package ships"
    for name in ("speeches", "bible"):
        (store,) = tmp_path.glob(f"exp002/{name}/tokens-*/attempts/*/output/train/manifest.json")
        manifest = json.loads(store.read_text())
        files = list(store.parent.glob("*.tok"))
        assert sum(file.stat().st_size for file in files) == 2 * manifest["num_tokens"]
        row = re.search(rf"^{name} +([\d,]+) +([\d,]+) ", report, re.MULTILINE)
        assert row is not None
        assert int(row[1].replace(",", "")) == manifest["num_tokens"]
        assert int(row[2].replace(",", "")) == (manifest["num_tokens"] - 1) // 256
    plan = run("plan", "--vocab_size", "2048", "--min_words", "60", root=tmp_path)
    actions = {line.split()[0]: line.split()[1] for line in plan.splitlines() if line.startswith("exp002/")}
    measured = {name for name, action in actions.items() if action == "cached"}
    assert {
        f"exp002/{name}/{what}" for name in ("speeches", "bible") for what in ("raw", "text", "heuristics", "copies")
    } == measured
