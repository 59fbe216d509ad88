#include "tests/support/tiny_model.h"

#include "make/make.h"
#include "tests/support/test.h"

const char *tiny_model(enum kern_type type)
{
    static char paths[KERN_N_TYPES][600];
    const struct make_opts o = {.arch = "tiny",
                                .type = type,
                                .seed = 1,
                                .format = "gguf",
                                .out = paths[type],
                                .n_threads = 1};

    if (!paths[type][0]) {
        snprintf(paths[type], sizeof(paths[type]), "%s/tiny-%s.gguf", test_dir(),
                 kern_type_name(type));
        assert_ok(make_model(&o));
    }
    return paths[type];
}
