#include "base/mem.h"

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>

/* Copy whole vectors to an aligned place; returns how many bytes. */
static size_t copy_vectors(char *to, const char *from, size_t bytes)
{
    size_t n = bytes / 64 * 64;

    for (size_t i = 0; i < n; i += 64)
        for (size_t k = 0; k < 64; k += 16)
            _mm_stream_si128((__m128i *)(to + i + k),
                             _mm_loadu_si128((const __m128i *)(from + i + k)));
    _mm_sfence();
    return n;
}
#else
static size_t copy_vectors(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return bytes;
}
#endif

void mem_copy_stream(void *to, const void *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % 64, n;

    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    n = head + copy_vectors((char *)to + head, (const char *)from + head, bytes - head);
    memcpy((char *)to + n, (const char *)from + n, bytes - n);
}
