#include "base/opt.h"

#include <string.h>

#define WORD_MAX_BYTES 64

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Edit distance with neighbours swapped counting as one; words are short by the limit. */
static int distance(const char *a, const char *b)
{
    int d[3][WORD_MAX_BYTES + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);

    if (na > WORD_MAX_BYTES || nb > WORD_MAX_BYTES)
        return 2 * WORD_MAX_BYTES;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = d[i % 3], *above = d[(i + 2) % 3], *above2 = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] =
                min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return d[na % 3][nb];
}

const char *opt_nearest(const char *s, const char *const *words)
{
    const char *best = NULL;
    int n = (int)strnlen(s, WORD_MAX_BYTES + 1), best_d = n / 3 < 2 ? 2 : n / 3;

    if (n > WORD_MAX_BYTES)
        return NULL;
    for (; *words; words++) {
        int d = distance(s, *words);
        if (n >= 3 && strncmp(s, *words, (size_t)n) == 0)
            d = 1; /* the beginning of a word is close to it, however long the rest */
        if (d < n && (best ? d < best_d : d <= best_d)) {
            best = *words;
            best_d = d;
        }
    }
    return best;
}
