#include "tests/support/test.h"

#include <pthread.h>

#include "base/log.h"

struct heard {
    int n;
    enum log_level level;
    char line[2048];
};

static void listen(void *ctx, enum log_level level, const char *line)
{
    struct heard *h = ctx;

    h->n++;
    h->level = level;
    snprintf(h->line, sizeof(h->line), "%s", line);
}

static int start(void **state)
{
    static struct heard h;
    struct log_warning w;

    h = (struct heard){0};
    while (log_warnings_take(&w, 1) > 0)
        ;
    log_set_level(LOG_INFO);
    log_set_sink(listen, &h);
    *state = &h;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    log_set_level(LOG_INFO);
    return 0;
}

TEST_WITH(levels, start, stop)
{
    struct heard *h = *state;

    log_debug("hidden %d", 1);
    assert_int_equal(h->n, 0);
    log_info("shown %d", 2);
    assert_int_equal(h->n, 1);
    assert_string_equal(h->line, "shown 2");
    log_set_level(LOG_ERROR);
    log_warn("hidden");
    assert_int_equal(h->n, 1);
    log_error("%s", "bad");
    assert_int_equal(h->level, LOG_ERROR);
    log_set_level(LOG_DEBUG);
    log_debug("now");
    assert_string_equal(h->line, "now");
}

TEST_WITH(long_lines_are_cut, start, stop)
{
    struct heard *h = *state;
    char text[4000];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    log_info("%s", text);
    assert_true(strlen(h->line) > 500 && strlen(h->line) < sizeof(text) - 1);
    log_warning(text, 0, 0, "%s", text);
    assert_int_equal(h->n, 2);
}

TEST_WITH(warnings_become_data, start, stop)
{
    struct heard *h = *state;
    struct log_warning w[4];

    log_warning("placement_mismatch", 3, 0.5, "%d pages elsewhere", 3);
    log_set_level(LOG_ERROR); /* not shown, kept all the same */
    log_warning("second", 1, 2, "text");
    assert_int_equal(h->n, 1);
    assert_string_equal(h->line, "placement_mismatch: 3 pages elsewhere");
    assert_int_equal(log_warnings_take(w, 0), 0);
    assert_int_equal(log_warnings_take(w, 1), 1);
    assert_string_equal(w[0].code, "placement_mismatch");
    assert_string_equal(w[0].text, "3 pages elsewhere");
    assert_true(w[0].observed == 3 && w[0].threshold == 0.5);
    assert_int_equal(log_warnings_take(w, 4), 1);
    assert_string_equal(w[0].code, "second");
    assert_int_equal(log_warnings_take(w, 4), 0);
}

TEST_WITH(overflow_is_counted, start, stop)
{
    static struct log_warning w[300];

    log_set_level(LOG_ERROR);
    for (int i = 0; i < 1000; i++)
        log_warning("w", i, 0, "number %d", i);
    assert_int_equal(log_warnings_take(w, 300), 256);
    for (int i = 0; i < 255; i++)
        assert_true(w[i].observed == i); /* the first ones stay */
    assert_string_equal(w[255].code, "warnings_dropped");
    assert_true(w[255].observed == 1000 - 255);
    log_warning("w", 7, 0, "room again");
    assert_int_equal(log_warnings_take(w, 300), 1);
}

static void *shout(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_warning("t", (double)(uintptr_t)arg, 0, "from a thread");
    return NULL;
}

TEST_WITH(threads, start, stop)
{
    static struct log_warning w[256];
    struct heard *h = *state;
    pthread_t t[3];

    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, shout, (void *)i), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(h->n, 600);
    assert_int_equal(log_warnings_take(w, 256), 256);
    assert_true(w[255].observed == 600 - 255);
}

/* What a line quotes of a file cannot control the terminal, nor break a record. */
TEST_WITH(control_characters_are_shown, start, stop)
{
    struct heard *h = *state;
    struct log_warning w;

    log_info("tokenizer \"%s\"", "\x1b]0;title\x07\xff");
    assert_string_equal(h->line, "tokenizer \"\\x1b]0;title\\x07\\xff\"");
    log_warning("code", 0, 0, "%s", "a\nb");
    assert_string_equal(h->line, "code: a\\x0ab");
    assert_int_equal(log_warnings_take(&w, 1), 1);
    assert_string_equal(w.text, "a\\x0ab");
}
