/* Damaged model files: whatever is changed in a header, the file is refused with one line
 * or loads as a sound model; a file cut short anywhere is refused. */
#include "tests/format/small.h"

static const struct {
    uint64_t value;
    size_t min_width; /* in fewer bytes it is another value of the table */
} extremes[] = {{0, 1},          {1, 1},          {1ull << 31, 4},
                {1ull << 32, 8}, {1ull << 63, 8}, {UINT64_MAX, 1}};
#define N_EXTREMES ((int)(sizeof(extremes) / sizeof(extremes[0])))

static const char *in_dir(const char *name)
{
    static char path[400];

    snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
    return path;
}

/* Every extreme value, as one, two, four and eight bytes, at every offset of the header:
 * each length, count, type, dimension and offset is hit in its own width. */
static void every_field_takes_every_extreme(const struct small *s, const char *open_path,
                                            const char *file)
{
    static const size_t widths[] = {1, 2, 4, 8};
    size_t at, w;
    int e, refused = 0, loaded = 0;

    test_write(file, s->b, s->n);
    assert_true(small_loads(open_path, "unchanged", 0));
    for (at = 0; at < s->head_n; at++)
        for (w = 0; w < 4; w++)
            for (e = 0; e < N_EXTREMES; e++) {
                if (at + widths[w] > s->n || widths[w] < extremes[e].min_width)
                    continue;
                small_patch(file, at, &extremes[e].value, widths[w]);
                if (small_loads(open_path, "extreme", (long)at))
                    loaded++;
                else
                    refused++;
                small_patch(file, at, s->b + at, widths[w]);
            }
    assert_true(small_loads(open_path, "restored", 0));
    assert_true(refused > loaded); /* most of a header is structure */
}

static void every_cut_is_refused(const struct small *s, const char *open_path,
                                 const char *file)
{
    size_t n;

    test_write(file, s->b, s->n);
    for (n = s->n - 1; n > 0; n = n > s->head_n + 64 ? n - 37 : n - 1) {
        assert_int_equal(truncate(file, (off_t)n), 0);
        if (small_loads(open_path, "cut", (long)n))
            fail_msg("cut to %zu of %zu bytes: loaded", n, s->n);
    }
    assert_int_equal(truncate(file, 0), 0);
    assert_false(small_loads(open_path, "cut", 0));
}

static void bits_flip(const struct small *s, const char *open_path, const char *file)
{
    struct rng r;
    size_t at;
    int i;
    uint8_t b;

    rng_init(&r, test_seed(), "mutate");
    test_write(file, s->b, s->n);
    for (i = 0; i < 4000; i++) {
        at = rng_below(&r, s->head_n);
        b = s->b[at] ^ (uint8_t)(1u << rng_below(&r, 8));
        small_patch(file, at, &b, 1);
        (void)small_loads(open_path, "flip", (long)at);
        small_patch(file, at, s->b + at, 1);
    }
}

TEST(gguf_survives)
{
    struct small s;

    small_gguf(&s);
    every_field_takes_every_extreme(&s, in_dir("m.gguf"), in_dir("m.gguf"));
    bits_flip(&s, in_dir("m.gguf"), in_dir("m.gguf"));
    every_cut_is_refused(&s, in_dir("m.gguf"), in_dir("m.gguf"));
}

TEST(quantised_gguf_survives)
{
    struct small s;

    small_gguf_quantised(&s);
    every_field_takes_every_extreme(&s, in_dir("q.gguf"), in_dir("q.gguf"));
    bits_flip(&s, in_dir("q.gguf"), in_dir("q.gguf"));
    every_cut_is_refused(&s, in_dir("q.gguf"), in_dir("q.gguf"));
}

TEST(llama2c_survives)
{
    struct small s;
    int vocab;

    for (vocab = -S_VOCAB; vocab <= S_VOCAB; vocab += 2 * S_VOCAB) {
        small_llama2c(&s, vocab);
        every_field_takes_every_extreme(&s, in_dir("m.bin"), in_dir("m.bin"));
        bits_flip(&s, in_dir("m.bin"), in_dir("m.bin"));
        every_cut_is_refused(&s, in_dir("m.bin"), in_dir("m.bin"));
    }
}

TEST(safetensors_survives)
{
    char dir[300], file[340], config[340];
    struct small s, c = {.n = sizeof(small_config_json) - 1};

    snprintf(dir, sizeof(dir), "%s/st", test_dir());
    snprintf(file, sizeof(file), "%s/model.safetensors", dir);
    snprintf(config, sizeof(config), "%s/config.json", dir);
    assert_int_equal(mkdir(dir, 0777), 0);
    test_write(config, small_config_json, c.n);
    small_safetensors(&s);
    every_field_takes_every_extreme(&s, dir, file);
    bits_flip(&s, dir, file);
    every_cut_is_refused(&s, dir, file);

    test_write(file, s.b, s.n); /* now the configuration */
    memcpy(c.b, small_config_json, c.n);
    c.head_n = c.n;
    every_field_takes_every_extreme(&c, dir, config);
    bits_flip(&c, dir, config);
    every_cut_is_refused(&c, dir, config);
}
