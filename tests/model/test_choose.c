/* The engine, `sandwich tune` and the evaluator of plans ask for the variants of a model by
 * the same function with the same question. Here all three really do, and a script says
 * which variant is fast: they must come to the same answer, whatever it is. */
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

#include "cpu/cpu.h"
#include "measure/compare.h"
#include "model/state.h"
/* The code of the programs itself, to look into. */
#include "cli/tune_jobs.c"
#include "plan/evaluator/measured.c"

#define N_SIZES       3 /* numbers of rows at which variants are timed */
#define N_ROWS        64
#define WARM_AND_KEPT 7 /* rounds of a comparison that is precise at once */

/* Which alternative is fast in the first, second and third comparison. */
struct plot {
    int fast[N_SIZES];
    int n_variants, n_trials;
};

static int play(void *arg, int i, struct measure_trial *t)
{
    struct plot *p = arg;
    int k = p->n_trials++ / (p->n_variants * WARM_AND_KEPT);

    /* later ones are not about variants */
    t->seconds = k < N_SIZES && i == p->fast[k] ? 0.5 : 1;
    return OK;
}

static int n_variants(void)
{
    int n = 0;

    for (int i = 0; kern_variants[i]; i++)
        n += kern_variants[i]->op == KERN_GEMM_BF16 && kern_variants[i]->isa &&
             !(kern_variants[i]->isa & ~cpu_isa_usable());
    return n;
}

/* The variant for each number of rows, and what is said about it. */
struct answer {
    const struct kern_variant *v[N_ROWS];
    char note[160];
};

static void answer_of(struct answer *a, const struct model *m)
{
    for (int r = 1; r <= N_ROWS; r++)
        a->v[r - 1] = model_gemm(m, model_mat(m, MODEL_MAT_QKV), r);
    snprintf(a->note, sizeof(a->note), "%s", model_kern_note(m));
}

static void ask_engine(struct answer *a, const char *path)
{
    static const int cpus[1];
    const struct model_opts o = {.weight_type = KERN_N_TYPES,
                                 .kv_type = KERN_KV_F32,
                                 .precision = KERN_RELAXED,
                                 .max_step_tok = N_ROWS};
    struct format_file *f = NULL;
    struct par_team *team = NULL;
    struct model *m = NULL;

    assert_ok(par_team_open(&team, cpus, 1, 0));
    assert_ok(format_open(&f, path));
    assert_ok(model_open(&m, f, team, &o));
    answer_of(a, m);
    model_close(&m);
    format_close(&f);
    par_team_close(&team);
}

static void ask_tune(struct answer *a, const char *path)
{
    const struct cli_tune_ask ask = {.model = path,
                                     .weight_type = "file",
                                     .precision = KERN_RELAXED,
                                     .m_max = N_ROWS,
                                     .every = true};
    struct cli_tune_jobs jobs;

    memset(a, 0, sizeof(*a));
    assert_ok(cli_tune_jobs(&jobs, &ask));
    for (int i = 0; i < jobs.n; i++)
        for (int k = 0; k < jobs.v[i].n_shapes; k++) {
            const struct tune_shape *s = &jobs.v[i].shapes[k];
            const struct kern_variant **v = &a->v[s->m - 1];

            assert_true(*v == NULL || *v == s->v); /* one for all matrices */
            *v = s->v;
        }
    cli_tune_jobs_free(&jobs);
}

static void ask_plan(struct answer *a, const char *path)
{
    const struct plan_trace trace = {
        .prompts = {1, {{8, 1}}}, .contexts = {1, {{8, 1}}}, .mean_output = 1};
    struct plan_evaluator_opts o = {.model_path = path,
                                    .precision = "relaxed",
                                    .trace = &trace,
                                    .batch = 1,
                                    .phase = TOPO_PREFILL,
                                    .seed = 1};
    struct topo_machine *machine = NULL;
    struct plan_evaluation e;

    assert_ok(topo_machine_open(&machine, "host"));
    o.machine = machine;
    assert_ok(measured_open(&e, &o));
    answer_of(a, ((const struct measured *)e.ctx)->bench->model);
    measured_close(&e);
    topo_machine_close(&machine);
}

TEST(run_tune_and_plan_choose_alike)
{
    const char *path = tiny_model(KERN_BF16);
    int n = n_variants();

    if (n < 2)
        test_skip("this processor has %d GEMM variants for bf16: nothing to choose", n);
    for (int small = 0; small < n; small++) {
        /* the same for all; from the most rows on another one; already in the middle */
        for (int k = 0; k < 3; k++) {
            int other = (small + 1) % n;
            const struct plot p = {
                .fast = {small, k > 1 ? other : small, k > 0 ? other : small},
                .n_variants = n};
            struct answer engine, tuned, plan;
            struct plot now = p;

            measure_script(play, &now);
            ask_engine(&engine, path);
            assert_int_equal(now.n_trials, N_SIZES * n * WARM_AND_KEPT);
            now = p;
            ask_tune(&tuned, path);
            assert_int_equal(now.n_trials, N_SIZES * n * WARM_AND_KEPT);
            now = p;
            ask_plan(&plan, path);
            measure_script(NULL, NULL);
            assert_true(now.n_trials >= N_SIZES * n * WARM_AND_KEPT);

            assert_string_equal(engine.note, plan.note);
            assert_true((engine.v[0] == engine.v[N_ROWS - 1]) == (k == 0));
            for (int r = 0; r < N_ROWS; r++)
                if (engine.v[r] != tuned.v[r] || engine.v[r] != plan.v[r])
                    fail_msg("%d rows: run takes %s, tune %s, plan %s", r + 1,
                             engine.v[r]->name, tuned.v[r]->name, plan.v[r]->name);
        }
    }
}

/* Without a script, too, an answer is one of the variants that qualify, and under EXACT it
 * is the table's. */
TEST(answers_qualify)
{
    struct kern_table table;

    for (int type = 0; type < KERN_N_TYPES; type++)
        for (int p = KERN_EXACT; p <= KERN_A8; p++) {
            enum kern_precision precision = (enum kern_precision)p;
            const struct kern_variant *usual;
            struct model_variants v;

            kern_table_choose(&table, cpu_isa_usable(), precision);
            usual = table.v[KERN_GEMM_F32 + type];
            assert_ok(
                model_variants_choose(&v, (enum kern_type)type, precision, 96, 256));
            for (int i = 0; i < MODEL_RANGES; i++) {
                assert_true(v.v[i]->op == usual->op);
                assert_true((v.v[i]->isa & ~cpu_isa_usable()) == 0);
                assert_true(v.v[i]->precision <= precision);
                if (precision == KERN_EXACT || usual->isa == 0)
                    assert_true(v.v[i] == usual && !v.note[0]);
            }
            assert_ptr_equal(model_variants_at(&v, 1), v.v[0]);
            assert_ptr_equal(model_variants_at(&v, 1000), v.v[MODEL_RANGES - 1]);
        }
}

/* Attention by the BF16 dot product only where that is fast, and never exact. */
TEST(attention_rounds_where_it_pays)
{
    static struct model m; /* its table is all that is used */
    struct kern_table exact;

    kern_table_choose(&exact, cpu_isa_usable(), KERN_EXACT);
    for (int p = KERN_EXACT; p <= KERN_A8; p++)
        for (int fast = 0; fast < 2; fast++) {
            struct kern_table before;

            kern_table_choose(&m.kern, cpu_isa_usable(), (enum kern_precision)p);
            before = m.kern;
            model_choose_attn(&m, fast);
            for (int op = 0; op < KERN_N_OPS; op++) {
                bool changes = !fast && kern_op_is_attn((enum kern_op)op);

                assert_ptr_equal(m.kern.v[op], changes ? exact.v[op] : before.v[op]);
                assert_true(p != KERN_EXACT || m.kern.v[op] == exact.v[op]);
            }
        }
}
