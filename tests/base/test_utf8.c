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

static void accepts_what_jansson_accepts(void **state)
{
    static const unsigned char edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                          0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xff};
    unsigned char s[4] = {0};

    (void)state;
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

static void code_points_there_and_back(void **state)
{
    char s[4];

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_jansson_accepts),
        cmocka_unit_test(code_points_there_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
