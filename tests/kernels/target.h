/* tests/kernels/target.h - functions for an instruction set, in a file that is compiled for none:
 * those from TARGET_BEGIN(its words) to TARGET_END. Intrinsics come before them, since clang would
 * give the attribute to theirs, too. */
#ifndef TESTS_KERNELS_TARGET_H
#define TESTS_KERNELS_TARGET_H

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define TARGET_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define TARGET_BEGIN(words)                                                              \
    TARGET_PRAGMA(                                                                       \
        clang attribute push(__attribute__((target(words))), apply_to = function))
#define TARGET_END _Pragma("clang attribute pop")
#else
#define TARGET_BEGIN(words)                                                              \
    TARGET_PRAGMA(GCC push_options) TARGET_PRAGMA(GCC target(words))
#define TARGET_END _Pragma("GCC pop_options")
#endif

#endif
