/* The one UTF-8 validator against jansson's, for every sequence of up to three bytes and the
 * edges of four; and code points there and back. */
#include "tests/support/test.h"

#include <jansson.h>
#include <string.h>

#include "base/utf8.h"

static void same_as_jansson(const unsigned char *s, size_t n)
{
    json_t *j = json_stringn((const char *)s, n);
    size_t at = 0;
    int len = 1;

    while (at < n && (len = utf8_len((const char *)s + at, n - at)) > 0)
        at += (size_t)len;
    assert_int_equal(utf8_valid((const char *)s, n), len > 0);
    if ((j != NULL) != (len > 0))
        fail_msg("%02x %02x %02x %02x, %zu bytes: jansson says %d, found %d", s[0], s[1],
                 s[2], s[3], n, j != NULL, len);
    json_decref(j);
}

TEST(accepts_what_jansson_accepts)
{
    static const unsigned char edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                          0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xff};
    unsigned char s[4] = {0};

    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++) {
            s[0] = (unsigned char)a, s[1] = (unsigned char)b;
            same_as_jansson(s, 1);
            same_as_jansson(s, 2);
            for (size_t c = 0; c < sizeof(edges); c++) {
                s[2] = edges[c];
                same_as_jansson(s, 3);
                for (size_t d = 0; d < sizeof(edges); d++) {
                    s[3] = edges[d];
                    same_as_jansson(s, 4);
                }
            }
        }
}

TEST(code_points_there_and_back)
{
    char s[4];

    for (int32_t code = 0; code <= 0x10ffff; code++) {
        int len = utf8_put(code, s);

        if (code >= 0xd800 && code <= 0xdfff) { /* surrogates are no characters */
            assert_true(utf8_len(s, (size_t)len) < 0);
            continue;
        }
        assert_int_equal(utf8_len(s, (size_t)len), len);
        assert_int_equal(utf8_code(s, len), code);
        for (int n = 1; n < len; n++)
            assert_int_equal(utf8_len(s, (size_t)n), 0); /* the beginning of one */
    }
}

/* Every character: itself, or escapes, and never a byte that a terminal obeys. */
TEST(shown_without_control)
{
    char s[5] = "", shown[64];

    for (int32_t code = 1; code <= 0x10ffff; code++) {
        int len = utf8_put(code, s);
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        bool character = code < 0xd800 || code > 0xdfff;

        s[len] = 0;
        utf8_show(shown, sizeof(shown), s);
        if (control || !character)
            assert_int_equal(strlen(shown), 4 * len);
        else
            assert_string_equal(shown, s);
    }
    utf8_show(shown, sizeof(shown), "a\x1b[31m\n\xc2\x9b\xff\xf0\x9f\xc3\xa9");
    assert_string_equal(shown, "a\\x1b[31m\\x0a\\xc2\\x9b\\xff\\xf0\\x9f\xc3\xa9");
    for (size_t room = 1; room < 12; room++) { /* no escape and no character is cut */
        size_t whole = room > 7 ? 7 : room > 5 ? 5 : room > 1 ? 1 : 0;

        memset(shown, 'x', sizeof(shown));
        utf8_show(shown, room, "a\x07\xc3\xa9");
        assert_int_equal(strlen(shown), whole);
    }
}
