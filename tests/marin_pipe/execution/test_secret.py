"""Secrets reach the step and nothing else."""

import json
import pickle
import random
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from marin_pipe.execution.errors import ConfigurationError, GraphError
from marin_pipe.execution.secret import Redactor, Secret, is_secret_name, refuse_secrets

VALUE = "correct horse+battery/staple"


def random_text(length, alphabet=string.ascii_letters + string.digits):
    return "".join(random.Random(length).choices(alphabet, k=length))


TOKENS = [
    "hf_" + random_text(34),
    "ghp_" + random_text(36),
    "github_pat_" + random_text(82),
    "glpat-" + random_text(20),
    "sk-" + random_text(48),
    "sk-proj-" + random_text(60),
    "sk-ant-api03-" + random_text(60),
    "AKIA" + random_text(16, string.ascii_uppercase + string.digits),
    "xoxb-" + random_text(12, string.digits) + "-" + random_text(24),
    "AIza" + random_text(35),
]


class Model(BaseModel):
    token: Secret


def test_a_secret_never_shows_its_value(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", VALUE)
    secret = Secret("MY_TOKEN")
    assert secret.reveal() == VALUE
    shown = [repr(secret), str(secret), json.dumps(secret.__canonical__()), Model(token=secret).model_dump_json()]
    assert all(VALUE not in text for text in shown)
    assert VALUE.encode() not in pickle.dumps(secret)
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301
    assert secret.__canonical__() == Secret("OTHER").__canonical__(), "it bears no identity"


@pytest.mark.parametrize("value", [None, ""])
def test_an_unset_secret_is_named(monkeypatch, value):
    monkeypatch.delenv("MY_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_TOKEN", value)
    with pytest.raises(ConfigurationError, match="MY_TOKEN is not set"):
        Secret("MY_TOKEN").reveal()


@pytest.mark.parametrize("name", ["", "a b", VALUE, *TOKENS])
def test_a_secret_takes_a_name_and_never_repeats_what_it_was_given(name):
    with pytest.raises(GraphError) as caught:
        Secret(name)
    assert not name or name not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("db_password", True),
        ("SERVICE_CREDENTIALS", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("MAX_TOKENS", False),
        ("KEYBOARD", False),
        ("MONKEY_PATCH", False),
        ("SSH_KEY_PATH", False),
        ("TOKEN_FILE", False),
        ("PWD", False),
        ("HOME", False),
    ],
)
def test_variables_are_secret_by_whole_words_of_their_name(name, secret):
    assert is_secret_name(name) == secret


@pytest.mark.parametrize("token", TOKENS)
def test_known_tokens_are_redacted_wherever_they_stand(token):
    redactor = Redactor({})
    for text in (token, f"Bearer {token}\n", f'{{"a":"{token}"}}', f"https://user:{token}@host", f"x={token};"):
        assert token not in redactor.redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096 num_tokens: 123456789012",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "revision 5f0b02c75b57c5855da9ae460ce51323ea669d8a",
        "key=30850855d5daf529f1ba6a9e56b340a8d99b0bfa62c6a7ecacac9bda8e69dd92",
        "from huggingface_hub import hf_hub_download, hf_hub_url",
        "disk-usage-of-the-whole-machine risk-assessment-of-a-thing sk-learn-pipeline-with-a-long-name",
        "the AKIA prefix, the xoxb- prefix, the ghp_ prefix",
        "/srv/cache/huggingface/token",
        "token: str | None = None, api_key=None, password='***'",
    ],
)
def test_ordinary_text_survives(text):
    redactor = Redactor.from_environment(environment={"HF_TOKEN": VALUE, "A_KEY": "none", "B_KEY": "1234567890"})
    assert redactor.redact(text) == text


def test_values_are_redacted_in_every_spelling(tmp_path):
    key_file = tmp_path / "credentials.json"
    key_file.write_text("{}")
    private_key = "-----BEGIN KEY-----\n" + random_text(64) + "\nshort\n"
    redactor = Redactor.from_environment(
        declared=["PLAIN", "MISSING"],
        environment={
            "HF_TOKEN": VALUE,
            "SIGNING_KEY": private_key,
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file),
            "PLAIN": "hunter2",
            "USER": "somebody-else",
        },
    )
    assert redactor.redact(f"a {VALUE} b") == "a [HF_TOKEN redacted] b"
    assert redactor.redact("?q=correct%20horse%2Bbattery%2Fstaple") == "?q=[HF_TOKEN redacted]"
    assert random_text(64) not in redactor.redact(f"line: {random_text(64)}")
    assert redactor.redact("hunter2") == "[PLAIN redacted]"
    assert redactor.redact(f"{key_file} somebody-else short") == f"{key_file} somebody-else short"


def test_the_longer_of_two_secrets_wins():
    redactor = Redactor({"password": "A_KEY", "password-extended": "B_KEY"})
    assert redactor.redact("password-extended") == "[B_KEY redacted]"


def test_bytes_that_are_no_text_survive_around_a_secret():
    redactor = Redactor({"sécret-value": "A_KEY"})
    text = (b"\xff\x00" + "sécret-value".encode() + b"\xfe").decode("utf-8", "surrogateescape")
    assert redactor.redact(text).encode("utf-8", "surrogateescape") == b"\xff\x00[A_KEY redacted]\xfe"


@given(st.text(), st.text(), st.sampled_from(TOKENS))
@example("", "", TOKENS[0])
def test_no_token_survives_between_any_two_texts(before, after, token):
    redactor = Redactor({VALUE: "HF_TOKEN"})
    assert VALUE not in redactor.redact(before + VALUE + after)
    if not before[-1:].isalnum():
        assert token not in redactor.redact(before + token + after)


@given(st.text(max_size=50))
def test_redacting_twice_changes_nothing(text):
    redactor = Redactor({VALUE: "HF_TOKEN"})
    once = redactor.redact(f"{text} {VALUE} {TOKENS[0]}")
    assert redactor.redact(once) == once


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"a": 1, "token": VALUE}, "token"),
        (
            {"config": {"$class": "C", "fields": {"headers": [{"auth": f"Bearer\n{TOKENS[0]}"}]}}},
            "config.headers[0]['auth']",
        ),
        ({"config": {VALUE: 1}}, "config"),
        ({"file": {"$path": f"/{TOKENS[1]}"}}, "file"),
    ],
)
def test_an_argument_that_holds_a_secret_is_refused_by_name(monkeypatch, arguments, path):
    monkeypatch.setenv("HF_TOKEN", VALUE)
    with pytest.raises(GraphError) as caught:
        refuse_secrets(arguments)
    assert str(caught.value).startswith(f"argument {path} contains")
    assert "Secret(" in caught.value.next
    assert VALUE not in str(caught.value)
    assert not any(token in str(caught.value) for token in TOKENS)


def test_a_variable_set_later_is_noticed(monkeypatch):
    refuse_secrets({"a": VALUE})
    monkeypatch.setenv("LATE_TOKEN", VALUE)
    with pytest.raises(GraphError, match="LATE_TOKEN"):
        refuse_secrets({"a": VALUE})
    monkeypatch.setenv("LATE_TOKEN", VALUE + "2")
    refuse_secrets({"a": VALUE})
