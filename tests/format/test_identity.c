#include "tests/format/small.h"

static uint64_t identity(const char *name, const struct small *s)
{
    struct format_file *f;
    uint64_t id;

    test_write(test_path(name), s->b, s->n);
    assert_ok(format_open(&f, test_path(name)));
    id = format_identity(f);
    format_close(&f);
    return id;
}

/* The model is the same in another file, and another one where the first or the last value of a
 * tensor differs. */
TEST(other_weights_are_another_model)
{
    static const int at[] = {0, 39, 40, 48, 112, 144, 175, 176, 240, 248, 295, 344, 392};
    const size_t head_bytes = 7 * sizeof(int32_t); /* of the file */
    struct small s;
    uint64_t id;

    small_llama2c(&s, -S_VOCAB);
    id = identity("one.bin", &s);
    assert_true(identity("two.bin", &s) == id);
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        uint8_t *byte = (uint8_t *)s.b + head_bytes + 4 * (size_t)at[i] + 2;

        *byte ^= 1;
        if (identity("two.bin", &s) == id)
            fail_msg("value %d is another one, and the model the same", at[i]);
        *byte ^= 1;
    }
}
