/* The same step costs the same to whoever reports it: record, studies, plan,
 * `model inspect` and the engine's own totals. `sandwich bench` is compared with the
 * inspection by tests/cli/test_bench.sh. That this is what the step executes is
 * tests/model/test_cost.c's. */
#include <stdlib.h>

#include "experiments/run/run.h"
#include "format/format.h"
#include "make/make.h"
#include "model/inspect.h"
#include "plan/workload.h"
#include "serve/serve.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_phase_switch, study_ablation, study_mnn_operators,
    study_characterization;

/* The step of decode attends to CTX tokens; the prompts have PROMPT. */
enum { PROMPT = 128, CTX = 128, THREADS = 1 };

static const char *path;
static double decode_bytes, prefill_flop, prefill_bytes; /* of model/cost.h */

static int open_tiny(void **state)
{
    const struct model_cost_types t = {.weight = KERN_BF16, .kv = KERN_KV_F32};
    struct model_config c;
    struct model_cost x;

    (void)state;
    path = tiny_model(KERN_BF16);
    assert_ok(make_config("tiny", &c));
    decode_bytes = model_cost_decode(&c, t, CTX, 1).read_bytes;
    x = model_cost_prefill(&c, t, PROMPT, 0);
    prefill_flop = x.flop;
    prefill_bytes = x.read_bytes;
    return 0;
}

/* All but for the rounding of a quotient. */
static void near(double got, double want)
{
    if (!(fabs(got / want - 1) < 1e-12))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

/* A row whose second token is decoded at CTX. */
TEST(the_record)
{
    json_t *config = json_pack("{s:s, s:s, s:i, s:b}", "adapter", "sandwich", "model",
                               path, "threads", THREADS, "pin", 0);
    struct metrics_row rows[2] = {{.n_prompt_tok = CTX - 1, .n_tok = 2},
                                  {.n_prompt_tok = PROMPT, .n_tok = 1}};
    struct run_result r = {.rows = rows, .n = 2};
    struct run_system *s;

    assert_ok(run_system_open(&s, config));
    run_bounds(&r, s);
    assert_true(rows[0].decode_bytes == decode_bytes);
    assert_true(rows[1].prefill_flop == prefill_flop);
    run_system_close(&s);
    json_decref(config);
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    (void)ctx, (void)request, (void)id, (void)logits, (void)finish;
}

/* Of a prompt in steps of max_step_tok tokens and the token decoded after it. */
static void generate(struct serve_totals totals[SERVE_N_PHASES], int64_t max_step_tok)
{
    int32_t prompt[PROMPT];
    const struct serve_request r = {.prompt = prompt,
                                    .n_prompt = CTX - 1,
                                    .max_new = 2,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token};
    struct serve_opts o;
    struct serve *s;
    bool busy = true;
    int64_t id;

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i;
    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)path;
    o.pin = false;
    o.threads = THREADS;
    o.max_step_tok = max_step_tok;
    assert_ok(serve_open(&s, &o));
    assert_ok(serve_submit(s, &r, &id));
    while (busy)
        assert_ok(serve_step(s, &busy));
    for (int p = 0; p < SERVE_N_PHASES; p++)
        totals[p] = *serve_totals_of(s, (enum serve_phase)p);
    serve_close(&s);
    o.model = NULL;
    opt_free(serve_opt_table, &o);
}

TEST(the_engines_totals)
{
    struct serve_totals whole[SERVE_N_PHASES], cut[SERVE_N_PHASES];
    const struct serve_totals *d = &whole[SERVE_DECODE];

    generate(whole, 256);
    generate(cut, 50);
    assert_int_equal(d->n_tok, 1);
    assert_true((double)(d->weight_bytes + d->kv_bytes) == decode_bytes);
    assert_int_equal(whole[SERVE_PREFILL].n_steps, 1);
    assert_int_equal(cut[SERVE_PREFILL].n_steps, 3);
    assert_int_equal(cut[SERVE_PREFILL].flop, whole[SERVE_PREFILL].flop);
}

TEST(the_plan)
{
    const int64_t prompt[] = {PROMPT}, output[] = {1}, before[] = {CTX - 1};
    const struct plan_lengths p = {prompt, output, 1}, d = {before, output, 1};
    struct simulate_workload w;
    struct model_config c;
    struct plan_trace trace;
    const struct model_cost_types types = {KERN_BF16, KERN_KV_F32};

    assert_ok(make_config("tiny", &c));
    assert_ok(plan_trace_of(&trace, &p, 0));
    assert_ok(plan_workload(&w, &c, types, TOPO_PREFILL, &trace, 1));
    assert_true(w.v[0].flop == prefill_flop);
    assert_true(w.v[0].weight_bytes + w.v[0].kv_bytes == prefill_bytes);
    assert_ok(plan_trace_of(&trace, &d, 0));
    assert_ok(plan_workload(&w, &c, types, TOPO_DECODE, &trace, 1));
    assert_true(w.v[0].weight_bytes + w.v[0].kv_bytes == decode_bytes);
}

static double inspected(const json_t *list, const char *n_tok, int n, const char *key)
{
    const json_t *x;
    size_t i;

    json_array_foreach(
        list, i, x) if (json_integer_value(json_object_get(x, n_tok)) ==
                        n) return (double)json_integer_value(json_object_get(x, key));
    fail_msg("no entry of %d tokens", n);
    return 0;
}

TEST(the_inspection)
{
    struct format_file *f;
    const json_t *list;
    json_t *j;

    assert_ok(format_open(&f, path));
    assert_ok(model_inspect_json(f, &j));
    list = json_object_get(j, "decoded_token");
    assert_true(inspected(list, "ctx_tok", CTX, "bytes") == decode_bytes);
    list = json_object_get(j, "prompt");
    assert_true(inspected(list, "n_tok", PROMPT, "flop") == prefill_flop);
    assert_true(inspected(list, "n_tok", PROMPT, "bytes") == prefill_bytes);
    json_decref(j);
    format_close(&f);
}

static void study(const struct study *s, const char *rest)
{
    assert_ok(capture_run(s, "{\"model\": \"%s\", %s}", path, rest));
}

/* A card whose bandwidth and peak are 1 GB/s and 1 GFLOP/s, so that a bound is the inverse
 * of the cost. */
static json_t *unit_card(void)
{
    json_t *card = json_pack("{s:[{s:s, s:i, s:f}, {s:s, s:i, s:f}]}", "values", "name",
                             "read_gbps", "n_threads", 1, "estimate", 1.0, "name",
                             "peak_f32_fma_unit", "n_threads", 1, "estimate", 1.0);

    assert_non_null(card);
    return card;
}

TEST(the_studies)
{
    study(&study_phase_switch,
          "\"rounds\": 3, \"n_prompt_tok\": 127, \"n_output_tok\": 3, "
          "\"prefill_threads\": 1, \"decode_ranks\": 1, \"decode_threads\": 1");
    assert_true(value_of("token_bytes") == decode_bytes);
    study(&study_ablation, "\"rounds\": 3, \"batch\": 1, \"n_prompt_tok\": 127, "
                           "\"n_output_tok\": 3, \"tune_s\": 0.01");
    assert_true(value_of("token_bytes") == decode_bytes);

    capture.card = unit_card();
    study(&study_mnn_operators, "\"phase\": \"decode\", \"n_tok\": 127, \"rounds\": 3");
    near(1e9 / value_of("bound_tok_s"), decode_bytes);
    study(&study_mnn_operators, "\"phase\": \"prefill\", \"n_tok\": 128, \"rounds\": 3");
    near(1e9 * PROMPT / value_of("bound_tok_s"), prefill_flop);
    json_decref(capture.card);
    capture.card = NULL;

    study(&study_characterization, "\"prompt_tok\": 128, \"threads\": 1");
    near(value_of("sde_flop"), prefill_flop);
    near(value_of("sde_weight_bytes") + value_of("sde_kv_bytes"), prefill_bytes);
    near(value_of("estimated_flop_per_byte"), prefill_flop / prefill_bytes);
}

TEST_GROUP(open_tiny, capture_end);
