/* The engine under load: sequences as long as the model allows where the requests are longer. */
#include "format/format.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_kv_serving;

TEST_GROUP(NULL, capture_end);

static int run(const char *max_tok)
{
    return capture_run(&study_kv_serving,
                       "{\"model\": \"%s\", \"fit\": \"sharegpt\", \"clients\": 4, "
                       "\"n_requests\": 16, \"budget_seqs\": 2, \"rounds\": 1%s}",
                       tiny_model(KERN_BF16), max_tok);
}

TEST(sequences_are_no_longer_than_the_model_is_made_for)
{
    struct format_file *f;
    int limit;

    assert_ok(format_open(&f, tiny_model(KERN_BF16)));
    limit = f->config.max_tok;
    format_close(&f);
    assert_in_range(limit, 16, 1024); /* 95 % of 16 such requests are longer */
    assert_ok(run(""));
    assert_value("max_tok", limit);
    assert_true(value_of("tps_odma") > 0 && value_of("utilization_paged") > 0);
    assert_err(run(", \"max_tok\": 4096"), ERR_LIMIT, "4096");
}
