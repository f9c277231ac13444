"""C names, string literals and comments for text that comes from a model (and may be hostile)."""

import hashlib
import re
from collections.abc import Iterable

_MAX = 48  # C11 promises 63 significant characters; a name also carries a prefix and a suffix
# Words a parameter must not be called: keywords of C11 and C++17, macros of the headers a bundle
# includes, names compilers predefine, and the locals of the generated functions.
RESERVED = frozenset("""
    alignas alignof and and_eq asm atomic_cancel auto bitand bitor bool break case catch char
    char16_t char32_t class co_await co_return co_yield compl complex concept const const_cast
    consteval constexpr constinit continue decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if imaginary import inline int long
    module mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
    public reflexpr register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    linux unix i386 errno stdin stdout stderr assert noreturn near far interface small main
    ctx syms workers ins outs
""".split())
# Words a bundle must not be called: they mean something to C++ (its namespace), to CMake (its
# target) or to the C library (its header), whatever their case.
_NO_PREFIX = RESERVED | frozenset("""
    std posix test all clean install package help edit_cache rebuild_cache list_install_components
    run_tests null eof nan infinity bufsiz aotc assert ctype errno fenv float inttypes iso646 limits
    locale math setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib
    stdnoreturn string tgmath threads time uchar wchar wctype unistd fcntl pthread sched memory new
    span internal build
""".split())


def identifier(text: str) -> str:
    """A C identifier for any text: itself where it is one, else the legal characters and a few
    hexadecimal digits of its hash, so that different texts keep different names."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if word == text and 0 < len(text) <= _MAX:
        return word
    return f"{word[:_MAX]}_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:6]}"


def prefix(text: str) -> str:
    """The prefix of a bundle's functions and files: a C identifier that starts with a letter and
    not with ``aotc``, whose names belong to the runtime."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_")[:_MAX].rstrip("_")
    if not word or word[0].isdigit() or word.lower().startswith("aotc") or (
            word.lower() in _NO_PREFIX):
        word = f"m_{word}".rstrip("_")
    return word


def parameter_names(texts: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """One distinct parameter name per text, legal in C and C++, close to the text itself, none
    of ``taken``.  They differ also without regard to case: macros are made from them."""
    used, out = {*RESERVED, *taken}, []
    for text in texts:
        word = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:_MAX].rstrip("_")
        if not word or word[0].isdigit():
            word = f"x_{word}".rstrip("_")
        # an all-capital word, or one that looks like a type, may mean something to a header; of
        # single letters I is one (<complex.h>), all others stay what a dimension is called
        if word.isupper() and (len(word) > 1 or word == "I") or word.startswith(
                ("aotc", "int", "uint")):
            word = f"{word.lower()}_" if word.isupper() else f"x_{word}"
        number, plain = 2, word
        while word.lower() in used:
            word, number = f"{plain}_{number}", number + 1
        used.add(word.lower())
        out.append(word)
    return out


def c_string(text: str, longest: int = 4000) -> str:
    """The C expression (``const char *``) of a text as UTF-8, for initialisers at file scope: there
    a long one lasts as long as the program.  Octal escapes have three digits,
    so no following digit joins them; ``?`` is escaped against trigraphs.  ``longest``: bytes that a
    string literal may have; C11 promises 4095, C++ 65536 and no such initialisers."""
    data = text.encode("utf-8", "replace")
    chars = [_char(b) for b in data]
    if len(data) < longest:
        return '"' + "".join(chars) + '"'
    return "(const char[]){" + ", ".join("'\\''" if c == "'" else f"'{c}'" for c in chars) + ", 0}"


def _char(byte: int) -> str:
    if byte in b'"\\?':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def c_comment(text: str, limit: int = 300) -> str:
    """A text for the inside of a ``/* */`` comment: ASCII, one line, unable to end the comment,
    open another or form a trigraph."""
    safe = text.encode("unicode_escape", "replace").decode("ascii")
    safe = re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", safe)
    return safe if len(safe) <= limit else safe[:limit] + " ..."
