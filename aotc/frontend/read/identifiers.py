"""C identifiers for tensors, axes and symbols.  ONNX names are arbitrary text and are never
trusted: what comes out of here is the only spelling that reaches generated code."""

import re

LIMIT = 40  # longest identifier; long names keep their end, which says more than the beginning

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline
int long register restrict return short signed sizeof static struct switch typedef union unsigned
void volatile while alignas alignof bool complex false true imaginary noreturn nullptr constexpr
generic thread_local static_assert typeof asm fortran and and_eq bitand bitor catch class compl
concept const_cast decltype delete dynamic_cast explicit export friend mutable namespace new
noexcept not not_eq operator or or_eq private protected public reinterpret_cast requires
static_cast template this throw try typeid typename using virtual wchar_t xor xor_eq near far
linux unix i386 main errno stdin stdout stderr assert offsetof va_list va_start va_arg va_end
"""
_LIBC = """
abort abs acos acosh asin asinh atan atan2 atanh atexit atof atoi atol atoll bsearch calloc cbrt
ceil clock copysign cos cosh ctime difftime div erf erfc exit exp exp2 expm1 fabs fclose fdim
feof ferror fflush fgetc fgets fgetpos fma fmax fmin fmod fopen fprintf fputc fputs fread free
freopen frexp fscanf fseek fsetpos ftell fwrite gamma getc getchar getenv gets gmtime hypot ilogb
index j0 j1 jn kill labs ldexp ldiv lgamma link llabs lldiv llrint llround localtime log log10
log1p log2 logb longjmp lrint lround malloc memchr memcmp memcpy memmove memset mktime modf nan
nearbyint nextafter pause perror pipe pow printf putc putchar puts qsort raise rand read realloc
remainder remove remquo rename rewind rindex rint round scalbn scanf select send setbuf setjmp
setvbuf signal signbit sin sinh sleep snprintf sprintf sqrt srand sscanf stat strcat strchr
strcmp strcpy strlen strncpy strstr strtod strtok strtol sync system tan tanh tgamma time tmpfile
tolower toupper trunc ungetc vprintf wait write y0 y1 yn isnan isinf isfinite size_t int8_t
int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t ptrdiff_t
"""
RESERVED = frozenset((_KEYWORDS + _LIBC).split())
# loop variables of the Programs made here: a buffer of that name would shadow them
_AXIS_LIKE = re.compile(r"(?:[bikoqra]\d*|[nmcgj]|[oik]c|[okq][dhw])\Z")


def sanitize(text: str, keep_case: bool = False) -> str:
    """A C identifier near ``text``: letters, digits and _, at most LIMIT, starts with a letter."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", text if keep_case else text.lower())
    text = re.sub(r"__+", "_", text).strip("_")
    if len(text) > LIMIT:
        text = text[-LIMIT:]
        cut = text.find("_")
        text = text[cut + 1:] if 0 <= cut < LIMIT // 2 else text
    if not text or not text[0].isalpha():
        text = ("t" + text)[:LIMIT]
    return "t_" + text[:LIMIT - 2] if text.startswith("aotc") else text


class Names:
    """Gives each name once; a clash or a reserved word gets _ and a number."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        # name asked for -> the number that its last clash ended with
        self.last: dict[str, int] = {}

    def claim(self, text: str, keep_case: bool = False, extent: bool = False) -> str:
        """A free identifier near ``text``; compared without case, as some file systems do.
        extent: of a symbol, which no loop variable hides and which stays what a user called it."""
        base = name = sanitize(text, keep_case)
        number = self.last.get(base, 1)
        while name.lower() in self.taken or name in RESERVED or (
                not extent and _AXIS_LIKE.match(name)):
            number += 1
            tail = f"_{number}"
            name = base[:LIMIT - len(tail)].rstrip("_") + tail
        self.taken.add(name.lower())
        self.last[base] = number
        return name
