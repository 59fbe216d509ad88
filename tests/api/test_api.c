/* The engine as a library: what is polled is what the engine computes, in any company; every way a
 * request can end; one line for each wrong use. */
#include "api/sandwich.h"

#include <stdio.h>

#include "base/build.h"
#include <jansson.h>

#include "tests/support/test.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tok_files.h"

#define IDS_MAX 64

struct got {
    int32_t ids[IDS_MAX];
    int n;
    char text[1024];
    enum sandwich_finish finish;
};

static struct sandwich *open_tiny(const char *more)
{
    struct sandwich *s;
    char options[1024];

    snprintf(
        options, sizeof(options),
        "{\"model\": \"%s\", \"tokenizer\": \"%s\", \"max_seqs\": 4, \"max_tok\": 128, "
        "\"threads\": 2%s}",
        tiny_model(KERN_F32), tok_files_write(TOK_FILES_GGUF_SPM), more);
    assert_ok(sandwich_open(&s, options));
    return s;
}

/* All requests to their ends; requests count from `first`. */
static void run(struct sandwich *s, struct got *got, int64_t first)
{
    struct sandwich_token t;
    bool busy = true;

    while (busy) {
        assert_ok(sandwich_step(s, &busy));
        while (sandwich_poll(s, &t)) {
            struct got *g = &got[t.request - first];

            assert_int_equal(g->finish, SANDWICH_RUNNING);
            g->finish = t.finish;
            if (t.id >= 0)
                g->ids[g->n++] = t.id;
            assert_int_equal(strlen(t.text), t.n_text);
            strcat(g->text, t.text);
        }
        assert_false(sandwich_poll(s, &t));
    }
}

TEST(test_company)
{
    static const char *const prompts[3] = {"a", "the other one", "and a third"};
    struct sandwich *s = open_tiny(", \"deterministic\": true");
    struct got alone[3] = {0}, together[3] = {0};
    int64_t id[3], first = 0;

    for (int i = 0; i < 3; i++) {
        struct sandwich_request r = {
            .text = prompts[i], .max_new = 9 + i, .ignore_eos = true};

        assert_ok(sandwich_submit(s, &r, &id[i]));
        run(s, &alone[i], id[i]);
        assert_int_equal(alone[i].n, 9 + i);
        assert_int_equal(alone[i].finish, SANDWICH_LENGTH);
    }
    for (int i = 0; i < 3; i++) {
        struct sandwich_request r = {.max_new = 9 + i, .ignore_eos = true};
        int32_t *ids;

        assert_ok(sandwich_encode(s, prompts[i], false, &ids, &r.n_ids));
        r.ids = ids;
        assert_ok(sandwich_submit(s, &r, &id[i]));
        sandwich_free(ids);
        first = i ? first : id[0];
    }
    run(s, together, first);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(together[i].n, alone[i].n);
        assert_memory_equal(together[i].ids, alone[i].ids, sizeof(alone[i].ids));
        assert_string_equal(together[i].text, alone[i].text);
    }
    sandwich_close(&s);
    assert_null(s);
}

TEST(test_seeded)
{
    struct sandwich *s = open_tiny("");
    struct got got[3] = {0};

    for (int i = 0; i < 3; i++) {
        struct sandwich_request r = {.text = "a",
                                     .max_new = 40,
                                     .ignore_eos = true,
                                     .temperature = 2,
                                     .top_k = 50,
                                     .seed = i == 2 ? 8 : 7};
        int64_t id;

        assert_ok(sandwich_submit(s, &r, &id));
        run(s, &got[i], id);
    }
    assert_memory_equal(got[0].ids, got[1].ids, sizeof(got[0].ids));
    assert_memory_not_equal(got[0].ids, got[2].ids, sizeof(got[0].ids));
    sandwich_close(&s);
}

TEST(test_cancel)
{
    struct sandwich *s = open_tiny("");
    struct sandwich_request r = {.text = "a", .max_new = 100, .ignore_eos = true};
    struct sandwich_token t;
    struct got got = {0};
    int64_t id;
    bool busy;

    assert_ok(sandwich_submit(s, &r, &id));
    assert_ok(sandwich_step(s, &busy));
    assert_true(sandwich_poll(s, &t));
    assert_int_equal(t.request, id);
    sandwich_cancel(s, id);
    sandwich_cancel(s, id + 1000);
    run(s, &got, id);
    assert_int_equal(got.finish, SANDWICH_CANCELED);
    assert_true(got.n < 100);
    assert_ok(sandwich_submit(s, &r, &id)); /* dropped by the close */
    sandwich_close(&s);
    sandwich_close(&s);
}

TEST(test_describe)
{
    struct sandwich *s = open_tiny("");
    char *words = sandwich_describe(s);
    json_t *j = json_loads(words, 0, NULL);

    assert_non_null(json_object_get(j, "plan"));
    assert_non_null(json_object_get(j, "cpu_budget"));
    json_decref(j);
    sandwich_free(words);
    assert_string_equal(sandwich_version(), build_info.version);
    sandwich_close(&s);
}

static void refuse(const char *options, const char *why)
{
    struct sandwich *s = (struct sandwich *)&s;

    assert_true(sandwich_open(&s, options) < 0);
    assert_null(s);
    if (!strstr(sandwich_error(), why))
        fail_msg("expected \"%s\" in \"%s\"", why, sandwich_error());
}

TEST(test_wrong)
{
    struct sandwich *s = open_tiny("");
    struct sandwich_request r = {.max_new = 1};
    int64_t id;

    refuse("{", "offset");
    refuse("[]", "expected a JSON object");
    refuse("{}", "expected \"model\"");
    refuse("{\"model\": \"/nowhere.gguf\"}", "/nowhere.gguf");
    refuse("{\"modell\": \"m\"}", "modell");
    refuse("{\"model\": \"m\", \"model\": \"n\"}", "duplicate");
    assert_int_equal(sandwich_submit(s, &r, &id), ERR_ARG);
    r.text = "a";
    r.max_new = 1000;
    assert_int_equal(sandwich_submit(s, &r, &id), ERR_LIMIT);
    r.max_new = 1;
    r.top_p = 2;
    assert_int_equal(sandwich_submit(s, &r, &id), ERR_ARG);
    sandwich_close(&s);
}
