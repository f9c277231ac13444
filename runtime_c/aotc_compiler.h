/* aotc_compiler.h: what compiles a bundle's sources.  Its headers are for any C11 or C++17. */
#ifndef AOTC_COMPILER_H
#define AOTC_COMPILER_H

#if defined(_MSC_VER) && !defined(__clang__)
#error "cl.exe has no vectors and atomics of C11's kind: build this bundle with clang-cl, whose \
objects cl.exe's programs link with"
#endif

#endif
