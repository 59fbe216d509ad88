#include "tests/support/mutate.h"

#include <ctype.h>
#include <string.h>

struct mutant {
    struct rng *r;
    uint8_t *p;
    size_t n, max;
};

/* A place before the end; half of them near the beginning, where headers are. */
static size_t place(const struct mutant *m)
{
    size_t n = rng_below(m->r, 2) && m->n > 4096 ? 4096 : m->n;

    return n ? rng_below(m->r, n) : 0;
}

static size_t length(const struct mutant *m, size_t at, size_t most)
{
    size_t left = m->n - at < most ? m->n - at : most;

    return left ? 1 + rng_below(m->r, left) : 0;
}

/* Put n_new bytes in the place of n_old. */
static void replace(struct mutant *m, size_t at, size_t n_old, const void *new,
                    size_t n_new)
{
    if (m->n - n_old + n_new > m->max)
        return;
    memmove(m->p + at + n_new, m->p + at + n_old, m->n - at - n_old);
    memcpy(m->p + at, new, n_new);
    m->n = m->n - n_old + n_new;
}

static void change_byte(struct mutant *m)
{
    static const uint8_t extreme[] = "\x00\x01\x7f\x80\xff\"<>{}[],:-.019e\n ";
    size_t at = place(m);

    if (m->n == 0)
        return;
    if (rng_below(m->r, 2))
        m->p[at] ^= (uint8_t)(1u << rng_below(m->r, 8));
    else
        m->p[at] = extreme[rng_below(m->r, sizeof(extreme) - 1)];
}

static void change_integer(struct mutant *m)
{
    static const uint64_t extreme[] = {0,          1,          0x7f,        0xff,
                                       0xffff,     0x7fffffff, 0x80000000u, 0xffffffffu,
                                       1ull << 32, 1ull << 40, ~0ull >> 1,  ~0ull};
    uint64_t v = extreme[rng_below(m->r, sizeof(extreme) / sizeof(extreme[0]))];
    size_t width = (size_t)1 << (1 + rng_below(m->r, 3)), at = place(m);

    if (at + width <= m->n)
        memcpy(m->p + at, &v, width);
}

/* The next decimal number becomes another one. */
static void change_number(struct mutant *m)
{
    static const char *const extreme[] = {
        "0",          "-1",         "1",      "2",     "65536",
        "2147483647", "2147483648", "1e308",  "1e999", "-0.0",
        "4294967296", "1e-300",     "0xffff", "",      "9223372036854775808",
        "1000000",    "null",       "true",   "\"\"",  "99999999999999999999999"};
    const char *new = extreme[rng_below(m->r, sizeof(extreme) / sizeof(extreme[0]))];
    size_t at = place(m), n = 0;

    while (at < m->n && !isdigit(m->p[at]))
        at++;
    while (at + n < m->n && isdigit(m->p[at + n]))
        n++;
    replace(m, at, n, new, strlen(new));
}

/* A piece, up to a long one, goes, or comes once more, or stands somewhere else, too. */
static void move_piece(struct mutant *m)
{
    uint8_t piece[4096];
    size_t from = place(m), to = place(m);
    size_t n = length(m, from, rng_below(m->r, 2) ? 16 : sizeof(piece));

    memcpy(piece, m->p + from, n);
    switch (rng_below(m->r, 3)) {
    case 0:
        replace(m, from, n, "", 0);
        break;
    case 1:
        for (uint64_t k = 1 + rng_below(m->r, 20); k > 0; k--)
            replace(m, from, 0, piece, n);
        break;
    default:
        replace(m, to, length(m, to, n), piece, n);
    }
}

static void insert_run(struct mutant *m)
{
    static const uint8_t bytes[] = "a0<[{\"\xff ";
    uint8_t run[8192];
    size_t n = 1 + rng_below(m->r, sizeof(run));

    memset(run, bytes[rng_below(m->r, sizeof(bytes) - 1)], n);
    replace(m, place(m), 0, run, n);
}

size_t mutate(struct rng *r, const uint8_t *data, size_t n, uint8_t *out)
{
    struct mutant m = {r, out, n, n + MUTATE_EXTRA};
    uint64_t changes = 1 + rng_below(r, 1 + rng_below(r, 8)); /* mostly few */

    memcpy(out, data, n);
    for (uint64_t i = 0; i < changes; i++) {
        uint64_t what = rng_below(r, 16);

        if (what < 5)
            change_byte(&m);
        else if (what < 8)
            change_integer(&m);
        else if (what < 11)
            change_number(&m);
        else if (what < 14)
            move_piece(&m);
        else if (what < 15)
            insert_run(&m);
        else if (rng_below(r, 4) == 0)
            m.n = place(&m);
    }
    return m.n;
}
