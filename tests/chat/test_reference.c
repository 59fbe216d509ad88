/* Renderings against jinja2 itself: templates written for it, those of the data at hand, and
 * short expressions, each with many conversations. */
#include "chat/template.h"

#include <dirent.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "format/gguf.h"
#include "tests/support/test.h"

#define NOW 1753012800 /* 20 July 2025 */

static char *read_text(const char *dir, const char *name, size_t *n)
{
    char path[500];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return test_read(path, n);
}

static json_t *variables_of(json_t *v, struct chat_variable *out, int *n)
{
    const char *key;
    json_t *value;

    *n = 0;
    json_object_foreach(v, key, value)
    {
        assert_true(*n < 16);
        out[(*n)++] = (struct chat_variable){
            .name = key, .value = value, .trusted = strstr(key, "_token") != NULL};
    }
    return v;
}

/* Our text, or NULL with the error in err_msg(). mem_free() it. */
static char *ours(const char *source, json_t *variables)
{
    struct chat_variable v[16];
    struct chat_input in = {.variables = v, .time_s = NOW, .max_bytes = 1 << 20};
    struct chat_prompt p = {0};
    struct chat_template *t;
    char *text = NULL;

    variables_of(variables, v, &in.n_variables);
    err_clear();
    if (chat_template_open(&t, source, strlen(source), "template") != OK)
        return NULL;
    if (chat_template_render(t, &in, &p) == OK) {
        text_put(&p.text, "", 1);
        text = mem_strdup(MEM_TEST, p.text.p);
    }
    chat_prompt_fini(&p);
    chat_template_close(&t);
    return text;
}

static void add(json_t *cases, const char *name, const char *source, json_t *variables)
{
    json_t *c = json_pack("{s:s, s:s, s:O}", "name", name, "source", source, "variables",
                          variables);

    assert_non_null(c);
    assert_int_equal(json_array_append_new(cases, c), 0);
}

/* What jinja2 makes of the cases; the test is skipped without it. */
static json_t *reference(json_t *cases)
{
    const char *in = test_path("cases.json");
    json_t *all = json_pack("{s:i, s:O}", "time", NOW, "cases", cases), *out;
    char command[900], to[400], *text;
    int status;

    snprintf(to, sizeof(to), "%s", test_path("rendered.json"));
    text = json_text(all, JSON_COMPACT); /* in its own order */
    assert_non_null(text);
    test_write(in, text, strlen(text));
    mem_free(text);
    json_decref(all);
    snprintf(command, sizeof(command), "/usr/bin/python3 tests/chat/reference.py %s %s",
             in, to);
    status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("python3-jinja2 is not installed");
    assert_int_equal(status, 0);
    assert_ok(json_read_file(&out, to, 64 << 20));
    assert_int_equal(json_array_size(out), json_array_size(cases));
    return out;
}

/* Every case gives the text that jinja2 gives, or fails where it fails. *n_texts: texts. */
static void compare(json_t *cases, int *n_texts)
{
    json_t *want = reference(cases);
    int n_wrong = 0;

    *n_texts = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *c = json_array_get(cases, i);
        const char *text =
            json_string_value(json_object_get(json_array_get(want, i), "text"));
        char *got = ours(json_str_at(c, "source", ""), json_object_get(c, "variables"));

        *n_texts += text != NULL;
        if (text ? !got || strcmp(got, text) != 0 : got != NULL) {
            n_wrong++;
            printf("# %s\n#   jinja2: %s\n#   here:   %s\n", json_str_at(c, "name", ""),
                   text ? text : json_str_at(json_array_get(want, i), "error", ""),
                   got ? got : err_msg());
        }
        mem_free(got);
    }
    json_decref(want);
    assert_int_equal(n_wrong, 0);
}

static json_t *conversations(void)
{
    json_t *all;

    assert_ok(json_read_file(&all, "tests/chat/conversations.json", 1 << 20));
    return all;
}

static void add_template(json_t *cases, const char *name, const char *source, json_t *all)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *c = json_array_get(all, i);
        char label[300];

        snprintf(label, sizeof(label), "%s: %s", name, json_str_at(c, "name", ""));
        add(cases, label, source, json_object_get(c, "variables"));
    }
}

TEST(written_templates)
{
    json_t *cases = json_array(), *all = conversations();
    DIR *d = opendir("tests/chat/templates");
    struct dirent *e;
    int n = 0, n_texts;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        size_t bytes;
        char *source, *text;

        if (e->d_name[0] == '.')
            continue;
        source = read_text("tests/chat/templates", e->d_name, &bytes);
        text = mem_strndup(MEM_TEST, source, bytes);
        add_template(cases, e->d_name, text, all);
        mem_free(source);
        mem_free(text);
        n++;
    }
    closedir(d);
    assert_true(n >= 20 && json_array_size(all) >= 12);
    compare(cases, &n_texts);
    assert_true(n_texts > 200);
    json_decref(cases);
    json_decref(all);
}

/* The template of a GGUF file, of a tokenizer_config.json, or a .jinja file; NULL: none. */
static char *template_in(const char *path)
{
    size_t len = strlen(path), n;
    char *data, *text = NULL;
    const char *s;
    struct gguf *g;
    json_t *j;

    if (len > 5 && strcmp(path + len - 5, ".gguf") == 0 && gguf_open(&g, path) == OK) {
        if (gguf_get_str(g, "tokenizer.chat_template", &s, &n) == OK)
            text = mem_strndup(MEM_TEST, s, n);
        gguf_close(&g);
    } else if (len > 6 && strcmp(path + len - 6, ".jinja") == 0) {
        data = test_read(path, &n);
        text = mem_strndup(MEM_TEST, data, n);
        mem_free(data);
    } else if (strstr(path, "tokenizer_config") &&
               json_read_file(&j, path, 64 << 20) == OK) {
        s = json_string_value(json_object_get(j, "chat_template"));
        text = s ? mem_strdup(MEM_TEST, s) : NULL;
        json_decref(j);
    }
    return text;
}

/* Those of published models, where they are at hand. */
TEST(found_templates)
{
    const char *dir = test_need_data("tokenizers");
    json_t *cases = json_array(), *all = conversations();
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0, n_texts;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        char path[1000], *text;

        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        text = template_in(path);
        if (text)
            add_template(cases, e->d_name, text, all);
        n += text != NULL;
        mem_free(text);
    }
    closedir(d);
    json_decref(all);
    if (n == 0) {
        json_decref(cases);
        test_skip("no file in %s has a chat template", dir);
    }
    compare(cases, &n_texts);
    assert_true(n_texts > 0);
    json_decref(cases);
}

/* Tags with every sign between random spaces and newlines. */
TEST(random_layouts)
{
    json_t *cases = json_array(), *all = conversations(), *layouts;
    const char *path = test_path("layouts.json");
    char command[500];
    int n_texts;

    snprintf(command, sizeof(command),
             "/usr/bin/python3 tests/chat/layouts.py %llu 1000 > %s",
             (unsigned long long)test_seed(), path);
    assert_int_equal(system(command), 0);
    assert_ok(json_read_file(&layouts, path, 1 << 20));
    for (size_t i = 0; i < json_array_size(layouts); i++) {
        const char *source = json_string_value(json_array_get(layouts, i));

        add(cases, source, source, json_object_get(json_array_get(all, 0), "variables"));
    }
    compare(cases, &n_texts);
    assert_true(n_texts > 900);
    json_decref(cases);
    json_decref(layouts);
    json_decref(all);
}

/* A number of at most 2^53, or an operation of two that are one level lower. */
static void put_number(struct text *t, struct rng *r, int level)
{
    static const char *const leaves[] = {"0",   "1",    "2",    "3",   "7",    "-5",
                                         "100", "0.0",  "-0.0", "0.1", "-0.1", "2.5",
                                         "7.0", "1e-7", "1e16", "1/3", "true", "-2.5"};
    static const char *const ops[] = {" + ", " - ", " * ",  " / ",  " // ",
                                      " % ", " < ", " == ", " >= ", " ** "};
    size_t op = rng_below(r, level == 1 ? 10 : 9);

    if (level == 0) {
        text_printf(t, "(%s)", leaves[rng_below(r, 18)]);
        return;
    }
    text_puts(t, rng_below(r, 4) == 0 ? "(-" : rng_below(r, 8) == 0 ? "(+" : "(");
    put_number(t, r, level - 1);
    text_puts(t, ops[op]);
    if (op == 9)
        text_puts(t, rng_below(r, 2) ? "2" : "-1");
    else
        put_number(t, r, level - 1);
    text_puts(t, rng_below(r, 8) == 0 ? ") | abs" : ")");
}

/* Signs of zero and quotients of reals were those of C: 7 // 0.1 gave 70. */
TEST(random_numbers)
{
    json_t *cases = json_array(), *none = json_object();
    struct rng r;
    int n_texts;

    rng_init(&r, test_seed(), "numbers");
    for (int i = 0; i < 300; i++) {
        struct text t = {0};

        text_puts(&t, "{{ ");
        put_number(&t, &r, 1 + i % 2);
        text_puts(&t, " }}");
        text_put(&t, "", 1);
        assert_ok(t.rc);
        add(cases, t.p, t.p, none);
        text_fini(&t);
    }
    compare(cases, &n_texts);
    assert_true(n_texts > 150);
    json_decref(cases);
    json_decref(none);
}

/* Short templates of which each shows one rule. */
TEST(expressions)
{
    json_t *cases = json_array(), *all = conversations(), *snippets;
    int n_texts;

    assert_ok(json_read_file(&snippets, "tests/chat/expressions.json", 1 << 20));
    for (size_t i = 0; i < json_array_size(snippets); i++) {
        const char *source = json_string_value(json_array_get(snippets, i));

        add(cases, source, source, json_object_get(json_array_get(all, 4), "variables"));
    }
    compare(cases, &n_texts);
    assert_true(n_texts > 100 && n_texts < (int)json_array_size(snippets));
    json_decref(cases);
    json_decref(snippets);
    json_decref(all);
}
