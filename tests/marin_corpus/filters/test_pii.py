"""Personal data: a written table of what is found and what is not, and work that grows with the text alone."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.filters.pii import SCHEMA, find_emails, find_ip_addresses, find_phones, pii_batch

FINDERS = {"email": find_emails, "ip": find_ip_addresses, "phone": find_phones}

# What is to be found stands between braces.
TABLE = {
    "email": """
        Write to {jane.doe@example.com}.
        {a@b.co}
        <{first+tag@sub.domain.example.org}>
        mailto:{x_y%z@host-name.example.net}?subject=hello
        ({JOHN@EXAMPLE.COM}, {mary@example.museum})
        mail {müller@exämple.de} now
        {user@xn--bcher-kva.example}
        {1234@example.com} and again {1234@example.com}
        Send to {a@example.com},{b@example.com};{c@example.com}
        {jane@example.com}...
        {info@example.com}-
        She wrote "{jane@example.com}"
        user@localhost
        @handle and @another.handle
        foo @ bar.com
        icon@2x.png
        a@b
        user@1.2.3.4
        package@1.2.3
        jane.@example.com
        @example.com
        bad@-example.com
        bad@example..com
        at 5 apples@0.50
        decorator: @app.route
    """,
    "ip": """
        ping {8.8.8.8}
        from {93.184.216.34}:8080 to {1.1.1.1}/24
        [{151.101.1.69}], {151.101.1.70}.
        {2001:4860:4860::8888} is a resolver
        [{2606:4700:4700::1111}]:443
        {2a00:1450:4001:82b:0:0:0:200e}
        see {2a00:1450:4001:82b::200e}: down
        localhost is 127.0.0.1
        router 192.168.0.1, 10.0.0.1, 172.16.3.4
        0.0.0.0 255.255.255.255 224.0.0.1
        documentation 192.0.2.1 198.51.100.7 203.0.113.9
        version 1.2.3.4
        Version: 5.6.7.8
        v1.2.3.4 and v 1.2.3.4
        release 4.18.0.2
        see section 3.2.1.4
        Chrome/91.0.4472.124
        300.1.1.1 and 1.2.3.256
        01.02.03.04
        1.2.3 and 1.2.3.4.5
        at 12:30:45
        std::vector and dead::beef
        00:1a:2b:3c:4d:5e
        ::1 fe80::1 2001:db8::1
        a.1.2.3.4 and 8.8.8.8x
        2001: a space odyssey
    """,
    "phone": """
        Call {(212) 555-0123} today
        {212-555-0123}
        {212.555.0123}.
        {212 555-0123}
        {(212)555-0123}
        {1-800-555-0199}
        {+1 212 555 0123}
        {+1-212-555-0123}
        {+12125550123}
        {+44 20 7946 0958}
        {+44 (0)20 7946 0958}
        {+49 30 901820}
        {+33 1 23 45 67 89}
        {+91-98765-43210}
        {+86 138 0013 8000}, or
        tel: {2125550123}
        Phone {212 555 0123}
        call us at {2125550123}
        {+1 212 555 0123} 2024 was
        On 2024-12-31 and 12-31-2024
        from 1990-2000
        ISBN 978-0-306-40615-7
        ISBN 0-306-40615-2
        ISBN-13: 9780306406157
        123-45-6789
        $212 555 0123
        2125550123
        300 400 5000
        1 234 567 890
        +5 points and +100%
        3+4 = 7
        123-456-7890
        212-155-0123
        order 212-555-01234
        212-555.0123
        x212-555-0123
        1.5 and 3.14159265358979
        192.168.100.1000
        +123456789012345678901
        +35236450.6 and +1234.56789012
        10.1000/182-555-0123
    """,
}
ROWS = [(kind, line.strip()) for kind, lines in TABLE.items() for line in lines.strip().splitlines()]


@pytest.mark.parametrize(("kind", "line"), ROWS)
def test_exactly_what_is_marked_is_found(kind: str, line: str) -> None:
    text = re.sub(r"[{}]", "", line)
    assert [text[start:end] for start, end in FINDERS[kind](text)] == re.findall(r"\{(.*?)\}", line)


@pytest.mark.parametrize(("kind", "line"), ROWS)
def test_what_stands_around_does_not_matter(kind: str, line: str) -> None:
    text = f"Én première ligne.\n{re.sub(r'[{}]', '', line)}\n🙂 et la suite."
    assert [text[start:end] for start, end in FINDERS[kind](text)] == re.findall(r"\{(.*?)\}", line)


def test_columns_say_where_and_how_many() -> None:
    text = "🙂 a@example.com or 8.8.8.8 or +44 20 7946 0958"
    batch = pa.record_batch({"text": pa.array([text, "", "nothing"], pa.large_string())})
    columns = pii_batch(batch)
    assert list(columns) == SCHEMA.names
    assert columns["num_emails"] == columns["num_ip_addresses"] == columns["num_phones"] == [1, 0, 0]
    found = {}
    for name in ("email_spans", "ip_address_spans", "phone_spans"):
        (span,) = columns[name][0]
        found[text[span["start"] : span["end"]]] = span["replacement"]
        assert columns[name][1:] == [[], []]
    assert found == {"a@example.com": "<EMAIL>", "8.8.8.8": "<IP>", "+44 20 7946 0958": "<PHONE>"}


@given(st.text(alphabet="a1.@+-() :2é\n", max_size=60))
def test_spans_are_in_order_and_inside(text: str) -> None:
    for find in FINDERS.values():
        end = 0
        for start, stop in find(text):
            assert end <= start < stop <= len(text)
            end = stop


HOSTILE = {
    "one letter": "a",
    "at signs": "@",
    "local parts": "a" * 64 + "@",
    "domains": "a@" + "b." * 130,
    "hyphens": "a@b-",
    "digits": "1",
    "octets": "1.",
    "dotted": "1.1.1.1.",
    "plus": "+1",
    "long plus": "+1" + "1" * 30 + " ",
    "plus gaps": "+1 2 3 4 5 6 7 8 9 0 ( ",
    "brackets": "(212)",
    "groups": "212-555-",
    "colons": "2001:",
    "double colons": "2001::",
    "hextets": "2001:4860:4860:0:0:0:0:8888:",
    "versions": "version ",
    "spaces": " ",
    "calls": "call us at call ",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_megabyte_of_anything_is_read_to_its_end(piece: str) -> None:
    # A pattern whose work grows with the square of the text would meet the time limit of all tests here.
    text = piece * (1_000_000 // len(piece)) + "\nx@example.com 9.9.9.9 (212) 555-0123"
    assert [text[slice(*list(find(text))[-1])] for find in FINDERS.values()] == [
        "x@example.com",
        "9.9.9.9",
        "(212) 555-0123",
    ]
