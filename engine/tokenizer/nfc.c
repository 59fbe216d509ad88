/* Normal form C (Unicode 3.11) of text whose tokenizer asks for it.
 *
 * utf8proc knows the tables and composes in linear time, but it orders combining marks by
 * exchanging neighbours, which is quadratic in a long run of them; here they are counted
 * into order. */
#include "tokenizer/tok.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* Characters below U+0300 never change and never combine with what stands before them. */
#define FIRST_COMBINING 0x300

struct codes {
    int32_t *c;
    size_t n, cap;
};

static int reserve(struct codes *v, size_t more)
{
    size_t cap = v->cap ? v->cap : 256;
    int32_t *p;

    while (cap < v->n + more)
        cap *= 2;
    if (cap == v->cap)
        return OK;
    p = mem_resize(MEM_TOKENIZER, v->c, cap, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    v->c = p;
    v->cap = cap;
    return OK;
}

static int ccc(int32_t code)
{
    return utf8proc_get_property(code)->combining_class & 0xff;
}

/* Put a run of marks (no class 0 among them) in order of class, stable. */
static void order_marks(int32_t *c, size_t n, int32_t *scratch)
{
    size_t start[257] = {0};

    for (size_t i = 0; i < n; i++)
        start[ccc(c[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    memcpy(scratch, c, n * sizeof(*c));
    for (size_t i = 0; i < n; i++)
        c[start[ccc(scratch[i])]++] = scratch[i];
}

static int order_all(struct codes *v)
{
    int32_t *scratch = mem_new(MEM_TOKENIZER, v->n, sizeof(*scratch));

    if (!scratch)
        return ERR_NOMEM;
    for (size_t i = 0; i < v->n;) {
        size_t from = i;

        while (i < v->n && ccc(v->c[i]) != 0)
            i++;
        if (i - from > 1)
            order_marks(v->c + from, i - from, scratch);
        i += i == from;
    }
    mem_free(scratch);
    return OK;
}

static int decompose(struct codes *v, const char *s, size_t n)
{
    int rc = OK, boundary = 0;

    for (size_t i = 0; i < n && rc == OK;) {
        int len = utf8_len(s + i, n - i);
        int32_t code = utf8_code(s + i, len);
        utf8proc_ssize_t m;

        rc = reserve(v, 8); /* the longest canonical decomposition has 4 */
        if (rc != OK)
            break;
        m = utf8proc_decompose_char(code, v->c + v->n, 8, UTF8PROC_DECOMPOSE, &boundary);
        if (m < 0 || m > 8)
            return err_set(ERR_FORMAT, "normal form of U+%04X: %s", (unsigned)code,
                           utf8proc_errmsg(m));
        v->n += (size_t)m;
        i += (size_t)len;
    }
    return rc;
}

static int to_utf8(const struct codes *v, char **out, size_t *n_out)
{
    char *p = mem_new(MEM_TOKENIZER, 4 * v->n, 1);
    size_t n = 0;

    if (!p)
        return ERR_NOMEM;
    for (size_t i = 0; i < v->n; i++)
        n += (size_t)utf8_put(v->c[i], p + n);
    *out = p;
    *n_out = n;
    return OK;
}

/* A run of valid text in which something may change. */
static int normalise(const char *s, size_t n, char **out, size_t *n_out)
{
    struct codes v = {0};
    utf8proc_ssize_t m;
    int rc = decompose(&v, s, n);

    if (rc == OK)
        rc = order_all(&v);
    if (rc == OK) {
        m = utf8proc_normalize_utf32(v.c, (utf8proc_ssize_t)v.n,
                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        v.n = m < 0 ? 0 : (size_t)m;
        rc = m < 0 ? err_set(ERR_FORMAT, "normal form: %s", utf8proc_errmsg(m))
                   : to_utf8(&v, out, n_out);
    }
    mem_free(v.c);
    return rc;
}

/* The length of the run at s whose characters are all of one kind: untouched by
 * normalization (ASCII, below U+0300, or invalid), or not. */
static size_t run(const char *s, size_t n, bool *plain)
{
    size_t i = 0, last = 0; /* the last plain character belongs to the marks after it */

    *plain = true;
    while (i < n) {
        int len = utf8_len(s + i, n - i);
        bool valid = len > 0;

        if (valid && utf8_code(s + i, len) >= FIRST_COMBINING)
            break;
        last = valid ? i : i + (len < 0 ? (size_t)-len : n - i);
        i += valid ? (size_t)len : last - i;
    }
    if (i == n || last > 0)
        return i == n ? n : last;
    *plain = false;
    for (i = 0; i < n;) {
        int len = utf8_len(s + i, n - i);

        /* A run ends before a plain character that no mark follows. */
        if (len <= 0)
            break;
        if (i > 0 && utf8_code(s + i, len) < FIRST_COMBINING) {
            size_t next = i + (size_t)len;
            int more = next < n ? utf8_len(s + next, n - next) : 0;

            if (more <= 0 || utf8_code(s + next, more) < FIRST_COMBINING)
                break;
        }
        i += (size_t)len;
    }
    return i;
}

int tok_nfc(const char *s, size_t n, char **out, size_t *n_out)
{
    size_t cap = 0, done = 0;
    char *p = NULL, *grown;
    bool plain;
    int rc = OK;

    *out = NULL;
    *n_out = 0;
    if (run(s, n, &plain) == n && plain)
        return OK;
    for (size_t i = 0, len; i < n && rc == OK; i += len) {
        char *piece = NULL;
        size_t m;

        len = m = run(s + i, n - i, &plain);
        if (!plain)
            rc = normalise(s + i, len, &piece, &m);
        if (rc == OK && done + m > cap) {
            cap = 2 * (done + m) + n;
            grown = mem_resize(MEM_TOKENIZER, p, cap, 1);
            if (grown)
                p = grown;
            else
                rc = ERR_NOMEM;
        }
        if (rc == OK) {
            memcpy(p + done, piece ? piece : s + i, m);
            done += m;
        }
        mem_free(piece);
    }
    if (rc == OK) {
        *out = p, p = NULL;
        *n_out = done;
    }
    mem_free(p);
    return rc;
}
