#include "datasets/build.h"
#include "datasets/input.h"

static int next(struct dataset_input *in, bool is_list, char **text, size_t *n)
{
    int rc;

    if (is_list)
        return dataset_input_element(in, text, n);
    do
        rc = dataset_input_line(in, text, n);
    while (rc == OK && *text && *n == 0);
    return rc;
}

static int pass_over(struct dataset *d, const struct dataset_opts *o,
                     struct dataset_input *in, int refusal)
{
    TRY(dataset_input_resume(in, refusal));
    return dataset_skip_bad(d, o, refusal) ? OK : refusal;
}

int dataset_read_records(struct dataset *d, const struct dataset_opts *o,
                         dataset_record_fn fn)
{
    struct dataset_input *in = NULL;
    bool full = false, is_list;
    char *text;
    size_t n;
    int rc = dataset_input_open(&in, o->path);

    if (rc != OK)
        return rc;
    is_list = dataset_input_is_list(in);
    while (rc == OK && !full) {
        rc = next(in, is_list, &text, &n);
        if (rc == OK && !text)
            break;
        if (rc == OK)
            rc = fn(d, o, text, n, dataset_input_where(in), &full);
        if (rc != OK && dataset_may_skip_bad(d, o, rc))
            rc = pass_over(d, o, in, rc);
    }
    dataset_input_close(&in);
    return rc;
}
