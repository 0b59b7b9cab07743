"""Hard strings on which two engines must agree before one stands in for the other."""

# ruff: noqa: RUF001  the scripts of the world are the point here

from collections.abc import Iterator
from itertools import pairwise

_SCRIPTS = (
    "The quick brown fox, 1989.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń",
    "Съешь же ещё этих мягких французских булок",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "دِيمُقراطية، ٣٫١٤",
    "בְּרֵאשִׁית בָּרָא",
    "नमस्ते दुनिया १२३",
    "สวัสดีชาวโลก",
    "안녕하세요 세계",
    "吾輩は猫である。名前はまだ無い。",
    "天地玄黃，宇宙洪荒。",
    "გამარჯობა მსოფლიო",
    "Բարեւ աշխարհ",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈𐍉 𒀀𒁀",
)
_MARKS = (
    "e\u0301 a\u0308\u0323 n\u0303o",
    "Z\u0351\u036b\u0343a\u0329l\u034dg\u0327o",
    "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇪🇺🇯🇵",
    "1️⃣ #️⃣ ☺︎ ☺️",
    "fi ﬁ Å Å Ω Ω",
    "\u00a0\u2003\u200b\u200d\u2060\ufeff\u3000x",
    "\u202eright to left\u202c",
    "soft\u00adhyphen",
)
_LAYOUT = (
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\x00",
    "\x00\x01\x7f\x80\x9f",
    "a\nb\r\nc\rd\x0be\x0cf\x85g\u2028h\u2029i",
    "  two\n\n\n   three \t \t tabs\t\n",
    "trailing   ",
    "   leading",
    " \n \n x",
    "\n\n\n",
    "\t\t\tif x:\n\t\t\t\treturn",
    "word" + " " * 40 + "word",
)
_WORDS = (
    "don't DON'T I'll we've they'RE it's o'clock 'tis rock'n'roll",
    "don’t ‘quoted’ “double”",
    "1 12 123 1234 12345 3.14159 1,000,000 0xDEADBEEF 1e-10",
    "½ ² Ⅷ ١٢٣ 一二三",
    "snake_case camelCase kebab-case SCREAMING_CASE",
    "https://example.org/a?b=c&d=%20#frag user@example.org",
    "<|endoftext|> <|im_start|>user<|im_end|> <s></s> [INST] <unk>",
    "def f(x): return {'a': [1, 2, *x]}  # comment",
    "!!!???...---===+++###$$$%%%^^^&&&***((()))",
    "a.b.c;d:e,f!g?h",
    "\\n \\u0041 \\\\server\\share",
    "AAAAAAAAAAAAAAAA bbbbbbbbbbbbbbbb",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
)


def hard_strings() -> Iterator[str]:
    """A few hundred: scripts, marks, layouts and words, alone, joined, repeated, and around single characters."""
    texts = (*_SCRIPTS, *_MARKS, *_LAYOUT, *_WORDS)
    yield from texts
    for separator in ("", " ", "\n"):
        for first, second in pairwise(texts):
            yield f"{first}{separator}{second}"
    yield " ".join(texts)
    for character in "a Z0.!'\n\t\x00é中🎉\u0301\u200d":
        yield from (character * 3, character * 257, f"x{character}y", f" {character}", f"{character} 1{character}A")
