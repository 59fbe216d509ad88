/* A model file that is cut while it is loaded: one error that names it, in each format. */
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"
#include "make/make.h"
#include "placement/open.h"
#include "par/team.h"

static void cut(void *path, int64_t done_bytes, int64_t all_bytes)
{
    (void)done_bytes;
    (void)all_bytes;
    assert_int_equal(truncate(path, 5000), 0);
}

/* `file` is cut once the first matrix is packed. */
static int load(const char *path, char *file, struct par_team *team)
{
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = KERN_KV_F32,
                           .max_step_tok = 1,
                           .progress = file ? cut : NULL,
                           .progress_ctx = file};
    struct format_file *f = NULL;
    struct model *m = NULL;
    int rc;

    assert_ok(format_open(&f, path));
    rc = model_open(&m, f, team, &o);
    assert_true((rc == OK) == (m != NULL));
    model_close(&m);
    format_close(&f);
    return rc;
}

TEST(names_the_file)
{
    static const char *const formats[] = {"gguf", "safetensors"};
    static const int cpus[2];
    struct par_team *team = NULL;

    assert_ok(par_team_open(&team, cpus, 2, 0));
    for (int i = 0; i < 2; i++) {
        char path[300], file[400];
        struct make_opts o = {.arch = "tiny",
                              .type = KERN_BF16,
                              .format = formats[i],
                              .out = path,
                              .n_threads = 1};

        snprintf(path, sizeof(path), "%s/%s", test_dir(), formats[i]);
        snprintf(file, sizeof(file), "%s%s", path, i ? "/model.safetensors" : "");
        assert_ok(make_model(&o));
        assert_ok(load(path, NULL, team));
        assert_err(load(path, file, team), ERR_IO, file);
    }
    par_team_close(&team);
}
