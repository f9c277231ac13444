/* aotc_compiler.h: what compiles a bundle's sources.  Its headers are for any C11 or C++17. */
#ifndef AOTC_COMPILER_H
#define AOTC_COMPILER_H

#if defined(_MSC_VER) && !defined(__clang__)
#error "cl.exe has no vectors and atomics of C11's kind: build this bundle with clang-cl, whose \
objects cl.exe's programs link with"
#endif

/* gcc warns of functions of a header that a file does not call (-Wunused-function), clang of marked
 * ones that it does (-Wused-but-marked-unused). */
#if defined(__GNUC__) && !defined(__clang__)
#define AOTC_MAY_BE_UNUSED __attribute__((unused))
#else
#define AOTC_MAY_BE_UNUSED
#endif

#endif
