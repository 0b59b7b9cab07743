"""A quality classifier: paragraphs of the State of the Union addresses since 1950 against those before 1900, 10 MB.

Training reads the documents' files and writes the model's; scoring is of texts in memory. One thread. The baseline of
scoring is a dictionary look-up for each word, a document at a time, which knows no pairs and no lengths.
"""

import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from marin_corpus.filters.quality import QualityConfig, train_quality
from marin_corpus.filters.quality_features import hashed_ngrams
from marin_corpus.filters.quality_model import load_model
from marin_corpus.output import LocalOutput

from tests.benchmarks.measure import Row, against
from tests.speeches import paragraphs, speeches, write_documents


def baseline(texts: list[str], weights: dict[str, float]) -> list[float]:
    return [sum(weights.get(word, 0.0) for word in re.findall(r"\w+", text.lower())) for text in texts]


def rows(runs: int) -> Iterator[Row]:
    new, old = paragraphs(speeches(first_year=1950)), paragraphs(speeches(last_year=1899))
    texts = speeches()
    size_mb = sum(len(text.encode()) for text in texts) / 1e6
    training, scoring, looking_up = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        positive, negative = write_documents(folder / "new", new), write_documents(folder / "old", old)
        training_mb = (positive.text_bytes + negative.text_bytes) / 1e6
        for _ in range(runs):
            begin = time.process_time()
            metrics = train_quality(positive, negative, QualityConfig(), LocalOutput(folder / "model"))
            training.append(training_mb / (time.process_time() - begin))
        model = load_model(folder / "model")
        weights = dict.fromkeys(re.findall(r"\w+", " ".join(texts).lower()), 1.0)
        for _ in range(runs):
            begin = time.process_time()
            model.probabilities(hashed_ngrams(texts, len(model.weights_B)))
            scoring.append(size_mb / (time.process_time() - begin))
            begin = time.process_time()
            baseline(texts, weights)
            looking_up.append(size_mb / (time.process_time() - begin))
    unit = "MB per CPU second"
    yield against(
        f"quality: training on {training_mb:.1f} MB", statistics.median(training), unit, baseline=None, runs=runs
    )
    yield against(
        f"quality: scoring {size_mb:.1f} MB",
        statistics.median(scoring),
        unit,
        baseline=statistics.median(looking_up),
        runs=runs,
    )
    yield against("quality: ROC AUC on held-out paragraphs", metrics.auc, "", baseline=None, runs=1)
