"""Personal data with a form of its own: e-mail addresses, public IP addresses, telephone numbers.

Each kind gets a column of spans, which `consolidate` replaces if told to, and a count. What is no personal data by its
form alone (names, postal addresses) is not looked for. Decisions, each with a row in the tests' table:

* E-mail: a local part of letters, digits and "._%+-", a domain with a dot, a last label of letters that is not the
  suffix of a picture or page ("icon@2x.png").
* IP: public addresses only, so neither 127.0.0.1 nor 192.168.0.1. Four numbers that follow a word such as "version",
  "release" or "section", or a "v", are none.
* Telephone: international numbers with "+"; North American ones written (212) 555-0123, 212-555-0123, 212.555.0123,
  212 555-0123 or 1-212-555-0123; ten digits without separators or with spaces only after a word such as "phone" or
  "call". So no dates, years, ISBNs, amounts or identifiers; numbers in the national form of other countries are missed.

Work is proportional to the text, whatever it holds: patterns have bounded repeats, and what looks like a number is
taken as a whole and then judged.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from marin_corpus.documents.attributes import SPANS, map_attributes
from marin_corpus.documents.read import DocumentSet
from marin_corpus.output import Output

SCHEMA = pa.schema(
    [
        ("email_spans", SPANS),
        ("ip_address_spans", SPANS),
        ("phone_spans", SPANS),
        ("num_emails", pa.int64()),
        ("num_ip_addresses", pa.int64()),
        ("num_phones", pa.int64()),
    ]
)


def find_pii(documents: DocumentSet, output: Output) -> list[Any]:
    """Write the columns of `SCHEMA` for all documents; see `map_attributes`."""
    return map_attributes(documents, pii_batch, None, schema=SCHEMA, output=output)


def pii_batch(batch: pa.RecordBatch, _config: None = None) -> Mapping[str, Any]:
    """The columns of `SCHEMA` for the texts of a batch. Spans of a kind do not overlap and are in order."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for value in batch.column("text"):
        text = value.as_py()
        for kind, plural, replacement, find in _KINDS:
            spans = [{"start": start, "end": end, "replacement": replacement} for start, end in find(text)]
            columns[f"{kind}_spans"].append(spans)
            columns[f"num_{plural}"].append(len(spans))
    return columns


# E-mail -------------------------------------------------------------------------------------------------------------

_LOCAL_CHARACTERS = 64  # RFC 5321
_DOMAIN = re.compile(r"[\w.-]{4,253}")
_NO_DOMAINS = frozenset(
    ("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "bmp", "css", "js", "json", "html", "htm", "php", "pdf", "txt")
)


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each e-mail address."""
    done, at = 0, text.find("@")
    while at >= 0:
        start = at
        while start > max(done, at - _LOCAL_CHARACTERS) and (text[start - 1].isalnum() or text[start - 1] in "._%+-"):
            start -= 1
        while start < at and text[start] in ".%+-":
            start += 1
        domain = _DOMAIN.match(text, at + 1)
        length = _domain_length(domain.group()) if domain and start < at and text[at - 1] != "." else 0
        if length:
            done = at + 1 + length
            yield start, done
        at = text.find("@", at + 1)


def _domain_length(run: str) -> int:
    """Characters of the domain name at the beginning of a run of letters, digits, dots and hyphens; 0 if none."""
    labels = run.split("..")[0].rstrip(".-_").split(".")
    last = labels[-1]
    named = (last.isalpha() and len(last) >= 2) or last.startswith("xn--")
    whole = all(label and label[0] != "-" and label[-1] != "-" and "_" not in label for label in labels)
    if len(labels) < 2 or not named or not whole or last.lower() in _NO_DOMAINS:
        return 0
    return len(".".join(labels))


# IP address ---------------------------------------------------------------------------------------------------------

# Patterns begin with a set of characters, for which `re` looks fast; what may not stand before comes second.
_IPV4 = re.compile(r"[0-9](?<![\w.+-][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?![\w-])(?!\.\w)")
# Public addresses are those of 2000::/3: they begin so, and no clock time, C++ name or hardware address does.
_IPV6 = re.compile(r"[23](?<![\w:.][23])[0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,35}")
_VERSION_BEFORE = re.compile(
    r"\b(?:v|ver|version|versions|release|releases|rev|revision|build|firmware|driver|kernel|section|sections|sec|"
    r"chapter|clause|paragraph|figure|table|appendix|article|rule|oid)[\s.:#=]{0,3}\Z",
    re.IGNORECASE,
)
_VERSION_WORD_CHARACTERS = 16
# IANA's special-purpose registries, written down here because Python's own list changes between its versions.
_SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    )
]


def find_ip_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each public IPv4 or IPv6 address."""
    found = []
    for match in _IPV4.finditer(text):
        before = text[max(0, match.start() - _VERSION_WORD_CHARACTERS) : match.start()]
        if _is_public(match.group()) and not _VERSION_BEFORE.search(before):
            found.append(match.span())
    if "::" in text or text.count(":") >= 7:
        for match in _IPV6.finditer(text):
            address = match.group()
            if address.endswith(":") and not address.endswith("::"):
                address = address[:-1]
            if not text[match.start() + len(address) :][:1].isalnum() and _is_public(address):
                found.append((match.start(), match.start() + len(address)))
    return iter(sorted(found))


def _is_public(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not any(address in network for network in _SPECIAL)


# Telephone ----------------------------------------------------------------------------------------------------------

# What may stand between groups of digits.
_GAP = r"[ .\-/\u00a0\u2011]"
_INTERNATIONAL = re.compile(r"(?<![\w+])\+[1-9](?:[0-9() .\-/\u00a0\u2011]{6,24})")
_GROUP = re.compile(r"[0-9]+")
_BEFORE, _AFTER = r"(?<![\w.+$€£/-])", r"(?![\w-])(?!\.[0-9])"
_NORTH_AMERICAN = re.compile(
    rf"{_BEFORE}(?:1[ .-])?(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}(?P<first_gap>[ .-]))"
    rf"[2-9][0-9]{{2}}(?P<second_gap>[.-])[0-9]{{4}}{_AFTER}"
)
_BARE = re.compile(rf"{_BEFORE}(?:1 ?)?[2-9][0-9]{{2}} ?[2-9][0-9]{{2}} ?[0-9]{{4}}{_AFTER}")
_PHONE_BEFORE = re.compile(
    r"\b(?:tel|telephone|phone|call|fax|mobile|cell|text|whatsapp)(?: (?:number|no|us|me|at|on)){0,2}[ .:#(]{0,3}\Z",
    re.IGNORECASE,
)
_PHONE_WORD_CHARACTERS = 24
# How both of them end: most texts have no such thing, and this is found out four times as fast.
_NORTH_AMERICAN_END = re.compile(r"[0-9]{3}[.-][0-9]{4}")
_BARE_END = re.compile(r"[0-9]{3} ?[0-9]{4}")
_LONGEST_COUNTRY_CODE = 3
_MIN_DIGITS, _MAX_DIGITS = 8, 15  # E.164 allows 15


def find_phones(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each telephone number."""
    found = []
    if "+" in text:
        for match in _INTERNATIONAL.finditer(text):
            length = _international_length(match.group())
            if length:
                found.append((match.start(), match.start() + length))
    for match in _NORTH_AMERICAN.finditer(text) if _NORTH_AMERICAN_END.search(text) else ():
        # 212-555.0123 is no way to write one.
        if match["first_gap"] in (None, " ", match["second_gap"]):
            found.append(match.span())
    for match in _BARE.finditer(text) if _BARE_END.search(text) else ():
        before = text[max(0, match.start() - _PHONE_WORD_CHARACTERS) : match.start()]
        if _PHONE_BEFORE.search(before):
            found.append(match.span())
    return _without_overlap(sorted(found))


def _international_length(run: str) -> int:
    """Characters of the number at the beginning of "+" and a run of digits and separators; 0 if it is none."""
    # North America's have 11 digits; what follows is something else.
    limit = 11 if run[1] == "1" else _MAX_DIGITS
    digits, end, last = 0, 0, 1
    for group in _GROUP.finditer(run):
        gap = run[last : group.start()]
        if digits and not re.fullmatch(rf"{_GAP}?[()]?{_GAP}?\(?", gap):
            break
        if gap == "." and last == end > _LONGEST_COUNTRY_CODE + 1 and digits == end - 1:
            # +35236450.6 is a decimal.
            return 0
        if digits + len(group.group()) > limit:
            # An unbroken run of too many digits is an identifier.
            if end == 0 or not gap:
                return 0
            break
        digits += len(group.group())
        end = last = group.end()
    return end if digits >= (11 if run[1] == "1" else _MIN_DIGITS) else 0


def _without_overlap(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    end = 0
    for span in spans:
        if span[0] >= end:
            end = span[1]
            yield span


_KINDS: tuple[tuple[str, str, str, Callable[[str], Iterator[tuple[int, int]]]], ...] = (
    ("email", "emails", "<EMAIL>", find_emails),
    ("ip_address", "ip_addresses", "<IP>", find_ip_addresses),
    ("phone", "phones", "<PHONE>", find_phones),
)
