/* Memory of keys and values: the paper's models by arithmetic, a tiny one measured. */
#include "format/format.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_kv_memory;

TEST_GROUP(NULL, capture_end);

TEST(formulas)
{
    assert_ok(capture_run(&study_kv_memory, "{\"what\": \"bloom-176b\"}"));
    assert_value("kv_bytes_per_tok", 4014080);
    assert_value("batch_that_fits", 62); /* (640 - 352) GB of 1,149 tokens */
    assert_string_equal(evidence_of(""), "model");
    assert_true(isnan(value_of("rss_bytes_per_tok")));
    assert_ok(capture_run(&study_kv_memory, "{\"what\": \"llama2-70b\"}"));
    assert_value("kv_bytes_per_tok", 327680);
    assert_ok(capture_run(&study_kv_memory, "{\"what\": \"llama2-70b-mha\"}"));
    assert_value("kv_bytes_per_tok", 8 * 327680);
    assert_ok(
        capture_run(&study_kv_memory, "{\"what\": \"bloom-176b\", \"machine_gb\": 300}"));
    assert_value("batch_that_fits", 0);
}

TEST(the_engine_is_measured)
{
    struct format_file *f;
    double kv;

    assert_ok(capture_run(&study_kv_memory,
                          "{\"model\": \"%s\", \"n_seqs\": 8, \"n_points\": 4, "
                          "\"prompt_tok\": 40}",
                          tiny_model(KERN_BF16)));
    assert_ok(format_open(&f, tiny_model(KERN_BF16)));
    kv = 2.0 * f->config.n_layers * f->config.n_kv_heads * f->config.head_dim *
         sizeof(float);
    format_close(&f);
    assert_value("kv_bytes_per_tok", kv);
    assert_int_equal(length_of("rss_bytes"), 4);
    assert_true(series_at("batch_tok", 0) == 80 && series_at("batch_tok", 3) == 320);
    assert_value("tokens_as_weights", value_of("weights_gb") * 1e9 / kv);
    assert_true(value_of("used_over_formula") > 0.99);
    assert_true(series_at("formula_bytes", 3) - series_at("formula_bytes", 0) ==
                240 * kv);
    assert_err(capture_run(&study_kv_memory, "{}"), ERR_ARG, "study.model");
}
