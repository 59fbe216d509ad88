/* Work in proportion to what a file or a request says. Each input is made at two sizes; the steps
 * that its reader counts grow at most linearly, or reach a limit, at which the input is refused.
 * Before, these took time in proportion to the square of the size, uncounted. */
#include "base/text.h"
#include "chat/value.h"
#include "graph/graph.h"
#include "graph/onnx.h"
#include "tests/chat/render.h"
#include "tests/graph/onnx_write.h"
#include "tokenizer/tok.h"
#include "topo/machine.h"

#include <sys/resource.h>

#define TIMES 4 /* of the size: the larger input */

/* What it took, and whether it was refused at the limit. */
struct work {
    int64_t steps;
    bool refused;
};

/* ---- templates: N stands for the size ---- */

static struct work of_template(const char *source, int64_t n)
{
    struct chat_variable size = {.name = "N", .value = json_integer(n)};
    struct chat_input in = {
        .variables = &size, .n_variables = 1, .time_s = DAY, .max_bytes = 1 << 20};
    struct chat_template *t = open_template(source);
    struct chat_prompt p = {0};
    int rc = chat_template_render(t, &in, &p);

    if (rc != OK && rc != ERR_LIMIT)
        fail_msg("%s: %s", source, err_msg());
    assert_true(in.n_steps <= CHAT_STEPS_MAX + (int64_t)(CHAT_BYTES_MAX / 16));
    chat_prompt_fini(&p);
    chat_template_close(&t);
    json_decref((json_t *)size.value);
    return (struct work){in.n_steps, rc == ERR_LIMIT};
}

/* ---- expressions of a tokenizer, on a text of n times "a" ---- */

static struct work of_regex(const char *regex, int64_t n)
{
    struct tok_merge none = {.left = -1};
    struct tok t = {.by = TOK_BY_PAIR, .merge = &none}; /* all bytes are token 0 */
    struct tok_work w = {.t = &t};
    char *text = mem_new(MEM_TEST, (size_t)n, 1);
    int rc;

    assert_non_null(text);
    memset(text, 'a', (size_t)n);
    assert_ok(tok_pre_regex(&t, regex, strlen(regex)));
    rc = tok_pre_words(&w, text, (size_t)n);
    if (rc != OK && rc != ERR_LIMIT)
        fail_msg("%s: %s", regex, err_msg());
    assert_true(w.n_steps < 2 * w.max_steps);
    tok_pre_work_fini(&w);
    tok_pre_fini(&t);
    mem_free(w.out.id);
    mem_free(w.sym);
    mem_free(w.heap);
    mem_free(text);
    return (struct work){(int64_t)w.n_steps, rc == ERR_LIMIT};
}

/* ---- graphs: a line for each number k, which reads the line before it ---- */

static struct work of_graph(const char *line, int64_t n)
{
    struct text t = {0};
    struct graph g;
    struct work work;

    text_puts(&t, "%0 = input x: f32[1, T, 4]\n%1 = weight w: f32[4]\n");
    for (int64_t k = 2; k < n + 2; k++) {
        text_printf(&t, "%%%lld = ", (long long)k);
        for (const char *c = line; *c; c++)
            if (*c == '?')
                text_printf(&t, "%%%lld", (long long)(k == 2 ? 0 : k - 1));
            else
                text_put(&t, c, 1);
        text_puts(&t, "\n");
    }
    text_printf(&t, "return %%%lld\n", (long long)n + 1);
    assert_ok(t.rc);
    assert_ok(graph_parse(&g, t.p, t.n));
    assert_ok(graph_rewrite(&g, NULL));
    work = (struct work){g.n_steps, false};
    graph_fini(&g);
    text_fini(&t);
    return work;
}

/* ---- files: initializers, inputs or nodes ---- */

static struct work of_onnx(const char *kind, int64_t n)
{
    static const char values[65 * 4];
    const int64_t size = 65;
    struct text g = {0}, model;
    struct graph_onnx *f;
    struct work work;
    char name[40] = "";

    for (int64_t k = 0; k < n; k++) {
        snprintf(name, sizeof(name), "%s%lld", kind, (long long)k);
        if (*kind == 'w')
            onnx_initializer(&g, name, 1, &size, 1, values);
        else
            onnx_value(&g, 11, name, 1, &size, 1);
    }
    onnx_value(&g, 12, name, 1, &size, 1);
    model = onnx_model(&g, 17);
    assert_ok(graph_onnx_open(&f, model.p, model.n));
    assert_ok(graph_rewrite(graph_onnx_graph(f), NULL));
    work = (struct work){graph_onnx_graph(f)->n_steps, false};
    graph_onnx_close(&f);
    text_fini(&model);
    return work;
}

/* ---- a topology with the CPU number n; steps are KiB ---- */

static struct work of_topology(const char *xml, int64_t n)
{
    char path[400], text[2000];
    int len = snprintf(text, sizeof(text), xml, (long long)n);
    struct topo_machine *m;
    struct rusage used;
    int rc;

    snprintf(path, sizeof(path), "%s", test_path("work.xml"));
    test_write(path, text, (size_t)len);
    rc = topo_machine_open(&m, path);
    if (rc != OK && (rc != ERR_FORMAT || strncmp(err_msg(), path, strlen(path)) != 0))
        fail_msg("%s", err_msg());
    topo_machine_close(&m);
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    assert_true(used.ru_maxrss < 256 << 10);
    return (struct work){used.ru_maxrss, rc != OK};
}

#define SETS(name) name "=\"0x1\" complete_" name "=\"0x1\" "
#define TOPOLOGY                                                                         \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"                                         \
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"            \
    "<object type=\"Machine\" os_index=\"0\" " SETS("cpuset") SETS(                      \
        "nodeset") "allowed_cpuset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n"    \
                   "<object type=\"NUMANode\" os_index=\"0\" " SETS("cpuset")            \
                       SETS("nodeset") "gp_index=\"2\" local_memory=\"1073741824\"/>\n"  \
                                       "<object type=\"PU\" os_index=\"%lld\" " SETS(    \
                                           "cpuset")                                     \
                                           SETS("nodeset") "gp_index=\"3\"/>\n</"        \
                                                           "object></topology>\n"

/* Sizes are such that the square of the larger one, or its product with the other operand, is more
 * than a test may take. */
static const struct input {
    struct work (*of)(const char *what, int64_t n);
    const char *what;
    int64_t n;
    bool refused; /* at TIMES n; what is not must be done */
} inputs[] = {
    {of_topology, TOPOLOGY, 1 << 28, false},
    {of_template, "{{ ('a' * N).strip('b' * (N // 2) ~ 'a') | length }}", 500000, true},
    {of_template, "{{ ('a' * N).strip('bcde') }}{{ (' ' * N).strip() }}", 100000, false},
    {of_template, "{{ ('a' * N).rfind('a' * (N // 2) ~ 'b') }}", 500000, true},
    {of_template, "{{ ('ab' * N).rfind('c') }}{{ ('a' * N).find('b') }}", 500000, false},
    {of_template, "{{ ('ab' * N).rsplit('b') | length }}", 100000, false},
    {of_template, "{{ ('ab' * N).split('b') | length }}", 100000, false},
    {of_template,
     "{% set s = 'a' * N %}{% for i in range(N) %}{{ s.startswith(s) }}"
     "{% endfor %}",
     20000, true},
    {of_template,
     "{% set l = [0] * N %}{% for i in range(N) %}{{ '' if 1 in l }}"
     "{% endfor %}",
     2000, true},
    {of_template, "{{ 1 in [0] * N }}{{ ('a' * N) in ['a'] }}", 100000, false},
    {of_template,
     "{% set d = {'a' * N: 1} %}{% for i in range(N) %}{{ d['b' * N] }}"
     "{% endfor %}",
     5000, true},
    {of_template, "{% set l = [0.1] * N %}{{ l | string | length }}{{ l | max }}", 20000,
     false},
    {of_template, "{% set s = 'a' * N %}{% for i in range(N) %}{{ s | int }}{% endfor %}",
     5000, true},
    {of_template, "{% for i in range(N) if true %}{{ '' if loop.length }}{% endfor %}",
     2000, true},
    {of_template, "{{ '%s' % ('a' * N) }}{{ 'a'.ljust(N) | e }}", 20000, false},
    {of_template, "{{ range(N) | batch(3) | list | length }}", 20000, false},
    {of_regex, "a{0,150}a{0,150}a{0,150}[^a!]", 50000, true},
    {of_regex, "a(?=a*b)?", 50000, true},
    {of_regex, "(a+)+$b|a(?!a*b)", 50000, true},
    {of_regex, "a+", 200000, false},
    {of_regex, "b|[^c]{1,3}", 200000, false},
    {of_graph, "sigmoid(?)", 20000, false},
    {of_graph, "mul(?, %1)", 20000, false},
    {of_graph, "add(?, %0)", 20000, false},
    {of_onnx, "w", 20000, false},
    {of_onnx, "in", 20000, false},
};

TEST(work_is_linear)
{
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        const struct input *in = &inputs[i];
        struct work a = in->of(in->what, in->n), b = in->of(in->what, TIMES * in->n);

        printf("# %-60.60s %9lld %9lld%s\n", in->what, (long long)a.steps,
               (long long)b.steps, b.refused ? " refused" : "");
        if (b.refused != in->refused ||
            (!b.refused && (a.refused || b.steps > (TIMES + 1) * a.steps)))
            fail_msg("%s: %lld steps, and %lld at %d times the size", in->what,
                     (long long)a.steps, (long long)b.steps, TIMES);
    }
}
