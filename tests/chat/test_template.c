/* Templates without jinja2: what is refused, limits, what was read, damaged templates and want
 * of memory. */
#include "tests/chat/render.h"

#include <dirent.h>

#include "base/json.h"
#include "tests/support/faults.h"
#include "tests/support/mutate.h"

/* A construct that is not known is refused when the template is opened, by name and place. */
TEST(refused_when_opened)
{
    static const struct {
        const char *source, *part;
        int rc;
    } bad[] = {
        {"{{ x | urlize }}", "line 1, column 8: the filter \"urlize\"", ERR_UNSUPPORTED},
        {"a\n {{ x is escaped }}", "line 2, column 10: the test \"escaped\"",
         ERR_UNSUPPORTED},
        {"{% include 'f' %}", "line 1, column 4: the statement \"include\"",
         ERR_UNSUPPORTED},
        {"{% import 'f' as f %}", "\"import\"", ERR_UNSUPPORTED},
        {"{% extends 'f' %}", "\"extends\"", ERR_UNSUPPORTED},
        {"{% block b %}{% endblock %}", "\"block\"", ERR_UNSUPPORTED},
        {"{% do x %}", "\"do\"", ERR_UNSUPPORTED},
        {"{{ lipsum(5) }}", "the function \"lipsum\"", ERR_UNSUPPORTED},
        {"{% set x = cycler('a') %}", "line 1, column 12: the function \"cycler\"",
         ERR_UNSUPPORTED},
        {"{{ loop(x) }}", "the function \"loop\"", ERR_UNSUPPORTED},
        {"{{ x.append(1) }}", "the method \"append\"", ERR_UNSUPPORTED},
        {"{{ x.__class__.mro(1) }}", "the method \"mro\"", ERR_UNSUPPORTED},
        {"{{ x | map('shout') | list }}", "the filter \"shout\"", ERR_UNSUPPORTED},
        {"{{ x | select('odd one') | list }}", "the test \"odd one\"", ERR_UNSUPPORTED},
        {"{{ x | map(f) }}", "not named by a text", ERR_UNSUPPORTED},
        {"{{ x | join(glue='a') }}", "join with the argument \"glue\"", ERR_UNSUPPORTED},
        {"{% raw +%}a{% endraw %}", "raw ends in +%}", ERR_FORMAT},
        {"{{ '\\N{DASH}' }}", "escape sequence", ERR_UNSUPPORTED},
        {"{{ 99999999999999999999 }}", "64 bits", ERR_UNSUPPORTED},
        {"{{ x | join(*y) }}", "arguments by * of join", ERR_UNSUPPORTED},
        {"{{ range(**y) }}", "arguments by **", ERR_UNSUPPORTED},
        {"{% macro m() %}{{ varargs }}{% endmacro %}", "\"varargs\"", ERR_UNSUPPORTED},
        {"{% call 5 %}{% endcall %}", "a call block of what is not", ERR_UNSUPPORTED},
        {"{{ x[1, 2] }}", "several subscripts", ERR_UNSUPPORTED},
        {"{{ x }", "line 1, column 6: a closing bracket", ERR_FORMAT},
        {"{{ 'x }}", "closing quote", ERR_FORMAT},
        {"{# x", "the comment has no end", ERR_FORMAT},
        {"{% raw %}x", "endraw", ERR_FORMAT},
        {"{% if x %}y", "expected elif", ERR_FORMAT},
        {"{% endfor %}", "\"endfor\"", ERR_UNSUPPORTED},
        {"{{ a ? b }}", "column 6", ERR_FORMAT},
        {"{{ (a }}", "column", ERR_FORMAT},
        {"{% break %}", "not in a loop", ERR_FORMAT},
        {"{{ x | replace('a') }}", "at least 2", ERR_FORMAT},
        {"{{ x | first(1) }}", "at most 0", ERR_FORMAT},
        {"\xff", "UTF-8", ERR_FORMAT},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct chat_template *t = NULL;
        int rc = chat_template_open(&t, bad[i].source, strlen(bad[i].source), "FILE");

        if (rc != bad[i].rc || !strstr(err_msg(), bad[i].part) ||
            strncmp(err_msg(), "FILE: ", 6) != 0 || t)
            fail_msg("%s: got %s \"%s\"", bad[i].source, err_name(rc), err_msg());
    }
}

TEST(refused_when_rendered)
{
    static const struct {
        const char *source, *part;
        int rc;
    } bad[] = {
        {"{{ raise_exception('Roles\n alternate') }}", "Roles\\x0a alternate", ERR_ARG},
        {"x\n{{ y.z }}", "line 2, column 6: \"y\" is not defined", ERR_ARG},
        {"{{ 1 < y }}", "\"y\" is not defined", ERR_ARG},
        {"{{ y < 1 }}", "\"y\" is not defined", ERR_ARG},
        {"{{ u + 1 }}", "the operator + of str and int", ERR_ARG},
        {"{{ '%*d' % (1, 2) }}", "the format \"%*d\"", ERR_UNSUPPORTED},
        {"{{ '%(a)s' % d }}", "the format \"%(a)s\"", ERR_UNSUPPORTED},
        {"{{ '%101d' % 1 }}", "the format \"%d\"", ERR_UNSUPPORTED},
        {"{{ '%d' % 1.5 }}", "the format %d of a float", ERR_UNSUPPORTED},
        {"{{ '{:>5}'.format(1) }}", "other than {} and {0}", ERR_UNSUPPORTED},
        {"{{ (u | e) % 1 }}", "\"safe\"", ERR_UNSUPPORTED},
        {"{% for a in [1] %}{% for b in [2] recursive %}{% endfor %}{{ loop(1) }}"
         "{% endfor %}",
         "a loop cannot be called", ERR_ARG},
        {"{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "too deep",
         ERR_LIMIT},
        {"{{ u.upper }}", "writing a method", ERR_UNSUPPORTED},
        {"{{ d.items() }}", "writing a view", ERR_UNSUPPORTED},
        {"{{ l | map('upper') }}", "writing a generator", ERR_UNSUPPORTED},
        {"{{ (u | safe) + u }}", "\"safe\"", ERR_UNSUPPORTED},
        {"{{ l.split('a') }}", "list has no method \"split\"", ERR_ARG},
        {"{% set f = u %}{{ f() }}", "a str cannot be called", ERR_ARG},
        {"{{ 9223372036854775807 + 1 }}", "64 bits", ERR_LIMIT},
        {"{{ range(*l) }}", "an argument by *", ERR_UNSUPPORTED},
        {"{% call range(1) %}{% endcall %}", "not a macro", ERR_ARG},
        {"{{ '99999999999999999999' | int }}", "64 bits", ERR_LIMIT},
        {"{{ 2 ** 63 }}", "64 bits", ERR_LIMIT},
        {"{{ -9223372036854775807 - 2 }}", "64 bits", ERR_LIMIT},
        {"{{ [1] | tojson(indent=1001) }}", "at most 1000", ERR_ARG},
        {"{{ 'é'.isdigit() }}", "ASCII", ERR_UNSUPPORTED},
        {"{{ strftime_now('%f') }}", "strftime_now", ERR_UNSUPPORTED},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct chat_prompt p;
        int rc = run(bad[i].source, VARS, &p);

        if (rc != bad[i].rc || !strstr(err_msg(), bad[i].part) || strchr(err_msg(), '\n'))
            fail_msg("%s: got %s \"%s\"", bad[i].source, err_name(rc), err_msg());
        chat_prompt_fini(&p);
    }
}

/* Whatever a template does, it ends: in steps, in depth, in memory and in output. */
TEST(limits)
{
    static const char *const endless[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ 'x' * 99999999 }}",
        "{{ [0] * 999999999 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = "
        "ns.s + "
        "ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l, "
        "ns.l] "
        "%}{% endfor %}{{ ns.l }}",
        "{% for a in range(99999) %}0123456789abcdef{% endfor %}",
        "{{ range(100001) }}",
        "{{ 2 ** 9999999999 }}",
        "{{ 1 ** 9223372036854775807 }}{{ (-1) ** 9223372036854775807 }}",
        "{% set s='a'*1000000 %}{% for i in range(99999) %}{{ s.find('b') }}{% endfor %}",
    };
    struct chat_template *t;
    struct text deep = {0};

    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
        struct chat_prompt p;
        int rc = run(endless[i], "{}", &p);

        if (rc != ERR_LIMIT)
            fail_msg("%s: got %s \"%s\"", endless[i], err_name(rc), err_msg());
        chat_prompt_fini(&p);
    }
    for (int i = 0; i < 100000; i++)
        text_puts(&deep, i == 0 ? "{{ " : "(");
    assert_err(chat_template_open(&t, deep.p, deep.n, "template"), ERR_FORMAT,
               "brackets");
    deep.n = 0;
    for (int i = 0; i < 5000; i++)
        text_puts(&deep, "{% if a %}");
    assert_err(chat_template_open(&t, deep.p, deep.n, "template"), ERR_LIMIT, "too deep");
    deep.n = 0;
    for (int i = 0; i < 5000; i++)
        text_puts(&deep, i == 0 ? "{{ a" : " is not defined or not not -a");
    text_puts(&deep, " }}");
    assert_ok(chat_template_open(&t, deep.p, deep.n, "template"));
    chat_template_close(&t);
    deep.n = 0;
    for (int i = 0; i < 100000; i++)
        text_puts(&deep, i == 0 ? "{{ a" : " | a not not");
    assert_err(chat_template_open(&t, deep.p, CHAT_SOURCE_MAX + 1, "template"), ERR_LIMIT,
               "at most");
    text_fini(&deep);
}

/* A macro may call itself as deep as a nested schema needs it. */
TEST(deep_recursion)
{
    static const char source[] =
        "{% macro f(n) %}{% if n == -1 %}a{% elif n == -2 %}b{% elif n == 0 %}end{% else "
        "%}"
        "{% for i in [n] %}({{ f(i - 1) | trim }}){% endfor %}{% endif %}{% endmacro %}"
        "{{ f(100) | length }}";
    struct chat_prompt p;

    assert_ok(run(source, "{}", &p));
    assert_int_equal(p.text.n, 3);
    assert_memory_equal(p.text.p, "203", 3);
    chat_prompt_fini(&p);
}

/* A member that says something and was not read is named. */
TEST(unread_members)
{
    static const struct {
        const char *source, *message, *part; /* part NULL: accepted */
    } cases[] = {
        {"{{ messages[0].content }}", "{\"content\": \"a\", \"name\": \"b\"}",
         "messages: 0: name"},
        {"{{ messages[0].content }}", "{\"content\": \"a\", \"tool_calls\": [{}]}",
         "tool_calls"},
        {"{{ messages[0].content }}{{ 'name' in messages[0] }}",
         "{\"content\": \"a\", \"name\": \"b\"}", "name"},
        {"{{ messages[0].role }}", "{\"role\": \"user\", \"content\": \"a\"}", "content"},
        {"", "{\"role\": \"user\"}", "role"},
        {"{{ messages[0].content }}",
         "{\"content\": \"a\", \"name\": null, \"tool_calls\": [], \"x\": \"\", \"y\": "
         "{}, "
         "\"z\": false}",
         NULL},
        {"{{ messages[0]['content'] }}{{ messages[0].get('name') }}",
         "{\"content\": \"a\", \"name\": \"b\"}", NULL},
        {"{{ messages | tojson }}", "{\"content\": \"a\", \"name\": \"b\"}", NULL},
        {"{{ messages }}", "{\"content\": \"a\", \"name\": \"b\"}", NULL},
        {"{% for k, v in messages[0].items() %}{% endfor %}",
         "{\"content\": \"a\", \"name\": \"b\"}", NULL},
        {"{% set m = messages[::-1] | first %}{{ m.content if m.name }}",
         "{\"content\": \"a\", \"name\": \"b\"}", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chat_template *t = open_template(cases[i].source);
        json_t *m = json_loads(cases[i].message, 0, NULL),
               *v = json_pack("{s:[o]}", "messages", m);
        struct chat_prompt p;
        int rc;

        assert_non_null(v);
        rc = render(t, v, true, &p);
        if (rc != (cases[i].part ? ERR_ARG : OK) ||
            (cases[i].part && !strstr(err_msg(), cases[i].part)))
            fail_msg("%s with %s: %s \"%s\"", cases[i].source, cases[i].message,
                     err_name(rc), err_msg());
        chat_prompt_fini(&p);
        json_decref(v);
        chat_template_close(&t);
    }
}

/* Which variables were used. */
TEST(variables_that_were_read)
{
    struct chat_variable v[] = {{.name = "a", .value = json_integer(1)},
                                {.name = "b", .value = json_integer(2)},
                                {.name = "c", .value = json_integer(3)}};
    struct chat_input in = {.variables = v, .n_variables = 3, .max_bytes = 100};
    struct chat_template *t =
        open_template("{% if a == 1 %}{{ a }}{% else %}{{ b }}{% endif %}");
    struct chat_prompt p = {0};

    assert_ok(chat_template_render(t, &in, &p));
    assert_true(v[0].read && !v[1].read && !v[2].read);
    for (int i = 0; i < 3; i++)
        json_decref((json_t *)v[i].value);
    chat_prompt_fini(&p);
    chat_template_close(&t);
}

/* ---- damage ---- */

/* Changed at random, a template is refused with a line or renders something or fails. */
TEST(damaged)
{
    json_t *all;
    DIR *d = opendir("tests/chat/templates");
    struct dirent *e;
    struct rng rng;
    int n_opened = 0, n_refused = 0;

    rng_init(&rng, test_seed(), "templates");
    assert_ok(json_read_file(&all, "tests/chat/conversations.json", 1 << 20));
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        char *source = e->d_name[0] == '.' ? NULL : read_template(e->d_name);
        size_t n = source ? strlen(source) : 0;
        uint8_t *out = mem_new(MEM_TEST, n + MUTATE_EXTRA, 1);

        for (int i = 0; source && i < 150; i++) {
            size_t n_out = mutate(&rng, (const uint8_t *)source, n, out);
            struct chat_template *t;
            struct chat_prompt p;
            int rc = chat_template_open(&t, (char *)out, n_out, "template");

            n_opened += rc == OK;
            n_refused += rc != OK;
            if (rc != OK) {
                assert_true(err_msg()[0] && !strchr(err_msg(), '\n') && !t);
                continue;
            }
            (void)!render(
                t, json_object_get(json_array_get(all, (size_t)i % 13), "variables"),
                true, &p);
            chat_prompt_fini(&p);
            chat_template_close(&t);
        }
        mem_free(out);
        mem_free(source);
    }
    closedir(d);
    json_decref(all);
    assert_true(n_opened > 100 && n_refused > 100);
}

static int open_and_render(const char *source, const json_t *variables)
{
    struct chat_template *t;
    struct chat_prompt p = {0};
    int rc = chat_template_open(&t, source, strlen(source), "template");

    if (rc == OK)
        rc = render(t, variables, false, &p);
    chat_prompt_fini(&p);
    chat_template_close(&t);
    return rc;
}

/* The n-th allocation fails, for each n: an error, and nothing leaks. */
TEST(out_of_memory)
{
    static const char *const names[] = {"reasoning.jinja", "schemas.jinja",
                                        "mappings.jinja", "queries.jinja"};
    json_t *all, *v;
    long n = 0;

    assert_ok(json_read_file(&all, "tests/chat/conversations.json", 1 << 20));
    v = json_object_get(json_array_get(all, 2), "variables");
    json_object_del(v, "documents");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *source = read_template(names[i]);

        n += test_allocations(open_and_render(source, v), true);
        mem_free(source);
    }
    json_decref(all);
    assert_true(n > 20);
}
