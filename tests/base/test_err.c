#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>

TEST(set_and_prefix)
{
    err_clear();
    assert_string_equal(err_msg(), "");
    assert_int_equal(err_set(ERR_FORMAT, "offset %d", 12), ERR_FORMAT);
    assert_string_equal(err_msg(), "offset 12");
    assert_int_equal(err_prefix(ERR_FORMAT, "%s", "x.gguf"), ERR_FORMAT);
    assert_string_equal(err_msg(), "x.gguf: offset 12");
    err_set(ERR_ARG, "again: %s", err_msg()); /* its own message as an argument */
    assert_string_equal(err_msg(), "again: x.gguf: offset 12");
    errno = ENOENT;
    err_set(ERR_IO, "%m");
    assert_string_equal(err_msg(), "No such file or directory");
}

TEST(long_messages_are_cut)
{
    char text[2000];

    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = 0;
    err_set(ERR_ARG, "%s", text);
    assert_int_equal(strlen(err_msg()), 511);
    for (int i = 0; i < 3; i++)
        err_prefix(ERR_ARG, "%s", text);
    assert_int_equal(strlen(err_msg()), 511);
    err_prefix(ERR_ARG, "p");
    assert_int_equal(strlen(err_msg()), 511);
    assert_int_equal(strncmp(err_msg(), "p: aaa", 6), 0);
}

TEST(one_line_of_utf8)
{
    char text[600];

    err_set(ERR_ARG, "\xff a\xc3\xa9 \xc3 \xed\xa0\x80 \xf0\x9f\x98\x80 \xe2\x82");
    assert_string_equal(err_msg(), "\\xff a\xc3\xa9 \\xc3 \\xed\\xa0\\x80 "
                                   "\xf0\x9f\x98\x80 \\xe2\\x82");
    for (int lead = 505; lead < 513;
         lead++) { /* a character across the end is left out */
        memset(text, 'a', (size_t)lead);
        snprintf(text + lead, sizeof(text) - (size_t)lead, "\xf0\x9f\x98\x80");
        err_set(ERR_ARG, "%s", text);
        assert_true(strlen(err_msg()) >= 507 && strlen(err_msg()) <= 511);
        assert_null(strchr(err_msg(), '\\'));
    }
    err_set(ERR_ARG, "key \"%s\"", "a\nb");
    assert_string_equal(err_msg(), "key \"a\\x0ab\"");
}

TEST(names)
{
    assert_string_equal(err_name(OK), "OK");
    assert_string_equal(err_name(ERR_CANCELED), "ERR_CANCELED");
    assert_string_equal(err_name(ERR_STATE), "ERR_STATE");
    assert_string_equal(err_name(7), "ERR_?");
    assert_string_equal(err_name(-1000), "ERR_?");
}

static void *other(void *arg)
{
    const char *before = err_msg();

    (void)arg;
    if (before[0])
        return "a new thread has a message";
    err_set(ERR_IO, "mine");
    return NULL;
}

TEST(one_message_a_thread)
{
    pthread_t t;
    void *wrong;

    err_set(ERR_ARG, "first");
    assert_int_equal(pthread_create(&t, NULL, other, NULL), 0);
    pthread_join(t, &wrong);
    assert_null(wrong);
    assert_string_equal(err_msg(), "first");
}
