"""The byte-level alphabet of GPT-2: 256 printable characters that stand for the 256 bytes (Radford et al. 2019)."""


def _alphabet() -> dict[int, str]:
    """Printable Latin-1 bytes stand for themselves, the other 68 for the characters from U+0100 on, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


CHARACTER_OF_BYTE = _alphabet()
# Characters to the Latin-1 ones of their bytes, and the Latin-1 ones that are of no byte to one that Latin-1 lacks.
_TO_LATIN_1 = str.maketrans(
    {chr(byte): "\uffff" for byte in range(256)} | {c: chr(byte) for byte, c in CHARACTER_OF_BYTE.items()}
)


def token_to_bytes(token: str) -> bytes | None:
    """The bytes that a token of a byte-level vocabulary stands for; None if a character is not of the alphabet."""
    try:
        return token.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return None
