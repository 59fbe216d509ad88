/* Stop strings, found as if each text had been searched as a whole. */
#include "http/stop.h"

#include "tests/support/test.h"

static struct http_stop_word word[HTTP_STOP_MAX];

/* The match that ends first; of these the longest. Returns where it begins, or n. */
static size_t brute(const char *text, size_t n, char words[][8], int n_words)
{
    for (size_t end = 1; end <= n; end++)
        for (size_t from = 0; from < end; from++)
            for (int i = 0; i < n_words; i++)
                if (strlen(words[i]) == end - from &&
                    memcmp(text + from, words[i], end - from) == 0)
                    return from;
    return n;
}

/* How much of the text no word can take back, whatever follows. */
static size_t brute_safe(const char *text, size_t n, char words[][8], int n_words)
{
    for (size_t from = 0; from < n; from++)
        for (int i = 0; i < n_words; i++)
            if (strlen(words[i]) > n - from &&
                memcmp(text + from, words[i], n - from) == 0)
                return from;
    return n;
}

static void one_case(struct rng *r)
{
    char text[40], words[3][8];
    int n_words = 1 + (int)rng_below(r, 3);
    size_t n = rng_below(r, sizeof(text)), fed = 0;
    struct http_stop s = {.n = n_words, .word = word};
    bool found = false;

    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + rng_below(r, 2));
    for (int i = 0; i < n_words; i++) {
        size_t len = 1 + rng_below(r, 6);

        for (size_t k = 0; k < len; k++)
            words[i][k] = (char)('a' + rng_below(r, 2));
        words[i][len] = '\0';
        http_stop_set(&s, i, words[i], len);
    }
    while (fed < n && !found) {
        size_t piece = rng_below(r, 6);

        piece = piece < n - fed ? piece : n - fed;
        found = http_stop_feed(&s, text + fed, piece);
        fed += piece;
        if (!found)
            assert_int_equal(http_stop_safe(&s), brute_safe(text, fed, words, n_words));
    }
    if (found)
        assert_int_equal(s.found_at, brute(text, n, words, n_words));
    else
        assert_int_equal(brute(text, n, words, n_words), n);
}

TEST(test_as_a_whole)
{
    struct rng r;

    rng_init(&r, test_seed(), "stop");
    for (int i = 0; i < 20000; i++)
        one_case(&r);
}

TEST(test_longest_word)
{
    static char text[3 * HTTP_STOP_BYTES_MAX];
    struct http_stop s = {.n = 1, .word = word};

    memset(text, 'x', sizeof(text));
    text[HTTP_STOP_BYTES_MAX - 1] = 'y';
    http_stop_set(&s, 0, text, HTTP_STOP_BYTES_MAX);
    text[HTTP_STOP_BYTES_MAX - 1] = 'x';
    text[sizeof(text) - 1] = 'y';
    assert_true(http_stop_feed(&s, text, sizeof(text)));
    assert_int_equal(s.found_at, sizeof(text) - HTTP_STOP_BYTES_MAX);
}
