#include "tests/support/faults.h"

#include "base/json.h"
#include "format/format.h"
#include "make/make.h"
#include "model/cost.h"
#include "model/inspect.h"

static char gguf[300], st[300];

static int make_models(void **state)
{
    struct make_opts o = {.arch = "tiny", .type = KERN_BF16, .seed = 1, .n_threads = 1};

    (void)state;
    snprintf(gguf, sizeof(gguf), "%s/i.gguf", test_dir());
    snprintf(st, sizeof(st), "%s/i", test_dir());
    o.format = "gguf";
    o.out = gguf;
    assert_ok(make_model(&o));
    o.format = "safetensors";
    o.out = st;
    assert_ok(make_model(&o));
    return 0;
}

static int64_t get(const json_t *j, const char *key)
{
    assert_true(json_is_integer(json_object_get(j, key)));
    return json_integer_value(json_object_get(j, key));
}

/* A name in a file, and a path, need not be UTF-8. */
TEST(names_are_any_bytes)
{
    struct format_file *f;
    json_t *j;

    assert_ok(format_open(&f, gguf));
    snprintf(f->config.name, sizeof(f->config.name), "caf\xe9");
    snprintf(f->path, sizeof(f->path), "/\xff/model.gguf");
    assert_ok(model_inspect_json(f, &j));
    assert_string_equal(json_string_value(json_object_get(j, "name")), "caf?");
    assert_string_equal(json_string_value(json_object_get(j, "path")), "/?/model.gguf");
    json_decref(j);
    format_close(&f);
}

TEST(json_adds_up)
{
    struct format_file *f;
    json_t *j, *t, *tensors;
    int64_t sum = 0;
    size_t i;

    assert_ok(format_open(&f, gguf));
    assert_ok(model_inspect_json(f, &j));
    assert_int_equal(get(j, "dim"), 84);
    assert_int_equal(get(j, "n_params"), 378252);
    tensors = json_object_get(j, "tensors");
    assert_int_equal(json_array_size(tensors), 12); /* three global, nine a layer */
    json_array_foreach(tensors, i, t) sum += get(t, "bytes");
    assert_int_equal(sum, get(j, "tensor_bytes"));
    assert_int_equal(sum, 2 * (378252 - 7 * 84) + 4 * 7 * 84); /* norms are f32 */
    assert_true(get(j, "file_bytes") > sum);
    assert_string_equal(json_string_value(json_object_get(j, "kv_type")), "f32");
    t = json_array_get(tensors, 0);
    assert_string_equal(json_string_value(json_object_get(t, "name")),
                        "token_embd.weight");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(t, "shape"), 0)),
                     1003);
    assert_string_equal(json_string_value(json_object_get(t, "type")), "bf16");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(tensors, 2), "type")), "f32");
    json_array_foreach(json_object_get(j, "decoded_token"), i, t)
    {
        /* QKV, output, gate, up, down and the head of bf16, norms and KV of f32 */
        const int64_t weights =
            2 * (3 * 84 * (140 + 84 + 606) + 84 * 1003 + 84) + 4 * 7 * 84;

        assert_int_equal(get(t, "weight_bytes"), weights);
        assert_int_equal(get(t, "kv_bytes"), get(t, "ctx_tok") * 3 * 56 * 4);
        assert_int_equal(get(t, "bytes"), weights + get(t, "kv_bytes"));
        assert_int_equal(get(t, "flop"), 2 * (3 * 84 * (140 + 84 + 606) + 84 * 1003) +
                                             4 * 3 * 84 * get(t, "ctx_tok"));
    }
    assert_int_equal(i, 3);
    json_array_foreach(json_object_get(j, "prompt"), i, t)
    {
        struct model_cost x = model_cost_prefill(
            &f->config, (struct model_cost_types){KERN_BF16, KERN_KV_F32},
            get(t, "n_tok"), 0);

        assert_true((double)get(t, "flop") == x.flop);
        assert_true((double)get(t, "bytes") == x.read_bytes);
    }
    assert_int_equal(i, 3);
    json_decref(j);
    format_close(&f);
}

TEST(text_says_the_same)
{
    struct format_file *f;
    char *text;

    assert_ok(format_open(&f, st));
    assert_ok(model_inspect_text(f, &text));
    assert_non_null(strstr(text, "hidden size        84\n"));
    assert_non_null(strstr(text, "attention heads    6 of size 14; KV heads 2\n"));
    assert_non_null(strstr(text, "parameters         378252 (0.4 million)\n"));
    assert_non_null(strstr(text, "ids that end text  2\n"));
    /* 84 * (140 * 384 + 690 * 257 + 1003) * 2 + 4 * 84 * (2 * 128 * 129 / 2 + 128) */
    assert_non_null(strstr(text, "       128        0.045 "));
    assert_non_null(strstr(text, "model.layers.0.self_attn.q_proj.weight"));
    assert_non_null(strstr(text, "3 x [84, 202]"));
    mem_free(text);
    format_close(&f);
}

TEST(every_allocation_may_fail)
{
    struct format_file *f;
    char *text;

    assert_ok(format_open(&f, gguf));
    assert_true(test_allocations(model_inspect_text(f, &text), true) > 20);
    mem_free(text);
    format_close(&f);
}

TEST_GROUP(make_models, NULL);
