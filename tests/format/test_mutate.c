/* Damaged model files: whatever is changed in a header, the file is refused with one line
 * or loads as a sound model; a file cut short anywhere is refused. */
#include "tests/format/small.h"

/* Each length, count, type, dimension and offset of a header is hit in its own width. */
static void survives(const struct test_document *d, size_t head_n)
{
    int n_read;

    assert_ok(test_parse(d, d->data, d->n));
    assert_true(test_fields(d, head_n, &n_read) > n_read); /* most of it is structure */
    assert_true(test_mutants(d, 4000) > 0);
    (void)test_cuts(d, d->n, &n_read);
    assert_int_equal(n_read, 0);
}

TEST(gguf_survives)
{
    struct test_document d;
    struct small s;

    small_gguf(&s);
    d = small_document(&s, test_memory_file());
    survives(&d, s.head_n);
    small_gguf_quantised(&s);
    d = small_document(&s, test_memory_file());
    survives(&d, s.head_n);
}

TEST(llama2c_survives)
{
    struct test_document d;
    struct small s;

    for (int vocab = -S_VOCAB; vocab <= S_VOCAB; vocab += 2 * S_VOCAB) {
        small_llama2c(&s, vocab);
        d = small_document(&s, test_path("m.bin"));
        survives(&d, s.head_n);
    }
}

TEST(safetensors_survives)
{
    const char *dir = test_path("st");
    struct test_document d, config = {.path = test_path("st/config.json"),
                                      .data = small_config_json,
                                      .n = sizeof(small_config_json) - 1,
                                      .parse = small_parse,
                                      .opened = dir,
                                      .named = dir};
    struct small s;

    assert_int_equal(mkdir(dir, 0777), 0);
    test_write(config.path, config.data, config.n);
    small_safetensors(&s);
    d = small_document(&s, test_path("st/model.safetensors"));
    d.opened = d.named = dir;
    survives(&d, s.head_n);
    test_write(d.path, d.data, d.n);
    survives(&config, config.n);
}
