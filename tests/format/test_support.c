/* Each architecture is either read or refused with what is missing, in files of both formats. */
#include "format/support.h"

#include <string.h>

#include "format/family.h"
#include "tests/format/small.h"

TEST(an_architecture_is_read_or_refused)
{
    int n = 0;

    for (const struct format_refused *r = format_refusals; r->arch; r++, n++) {
        if (format_family_of_arch(r->arch))
            fail_msg("%s is read: it has no place among what is refused", r->arch);
        assert_true(r->missing && r->missing[0]);
        for (const struct format_refused *other = format_refusals; other < r; other++)
            assert_string_not_equal(other->arch, r->arch);
    }
    assert_true(n > 53);
}

TEST(hybrids_are_refused_in_a_file)
{
    static const char *const archs[] = {"qwen3next", "falcon-h1", "granitehybrid", "lfm2",
                                        "jamba",     "mamba",     "rwkv7"};
    char path[300];
    struct format_file *f;

    snprintf(path, sizeof(path), "%s/refused.gguf", test_dir());
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        static struct small s;

        small_begin(&s);
        small_keys(&s, archs[i]);
        small_tensors(&s);
        small_end(&s);
        test_write(path, s.b, s.n);
        assert_err(format_open(&f, path), ERR_UNSUPPORTED, "needs state-space layers");
        assert_non_null(strstr(err_msg(), archs[i]));
        assert_non_null(strstr(err_msg(), "general.architecture"));
    }
}

TEST(hybrids_are_refused_in_a_folder)
{
    static const char *const types[] = {"qwen3_next", "falcon_h1", "granitemoehybrid",
                                        "lfm2",       "jamba",     "mamba2"};
    char dir[300], path[340], text[200];
    struct format_file *f;

    snprintf(dir, sizeof(dir), "%s/refused", test_dir());
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"architectures\": [\"X\"], \"model_type\": \"%s\"}", types[i]);
        test_write(path, text, strlen(text));
        assert_err(format_open(&f, dir), ERR_UNSUPPORTED, "needs state-space layers");
        assert_non_null(strstr(err_msg(), "model_type"));
    }
}
