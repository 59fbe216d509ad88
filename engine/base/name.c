#include "base/name.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX_BYTES 64
#define ENTRIES_MAX    128
#define LIST_BYTES     384 /* of the names in an error line */

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

const char *name_nearest(const char *s, const char *const *words)
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

int name_index(const char *const *words, const char *name)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], name) == 0)
            return i;
    return -1;
}

static int unknown(int code, const char *name, const char *const *words,
                   const char *known, const char *fmt, va_list ap)
{
    const char *near = name_nearest(name, words);
    char text[512];

    vsnprintf(text, sizeof(text), fmt, ap);
    return err_set(code, "%s%s%s%s%s%s%s", text, near ? "; did you mean \"" : "",
                   near ? near : "", near ? "\"?" : "", *known ? " (known: " : "", known,
                   *known ? ")" : "");
}

int name_unknown(int code, const char *name, const char *const *words, const char *fmt,
                 ...)
{
    va_list ap;

    va_start(ap, fmt);
    unknown(code, name, words, "", fmt, ap);
    va_end(ap);
    return code;
}

int name_not_in(const char *name, const char *const *words, const char *fmt, ...)
{
    char known[LIST_BYTES] = "";
    size_t n = 0;
    va_list ap;

    for (int i = 0; words[i] && n < sizeof(known); i++) {
        bool fits = n + strlen(words[i]) + sizeof(", , ...") <= sizeof(known);

        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
                              fits ? words[i] : "...");
        if (!fits)
            break;
    }
    va_start(ap, fmt);
    unknown(ERR_NOTFOUND, name, words, known, fmt, ap);
    va_end(ap);
    return ERR_NOTFOUND;
}

const void *name_find(const void *registry, const char *name, const char *what)
{
    const void *const *entries = registry;
    const char *words[ENTRIES_MAX + 1] = {NULL};

    for (int i = 0; entries[i] && i < ENTRIES_MAX; i++) {
        words[i] = *(const char *const *)entries[i]; /* the struct's first member */
        if (strcmp(words[i], name) == 0)
            return entries[i];
    }
    (void)name_not_in(name, words, "no %s \"%.80s\"", what, name);
    return NULL;
}
