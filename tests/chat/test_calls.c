/* Calls of tools in answers: text and calls of whole answers, and the same of answers that come in
 * any two parts, or byte by byte. */
#include <string.h>

#include "chat/calls.h"
#include "tests/support/test.h"

static const char *const templates[] = {
    "{% if tools %}in <tool_call></tool_call> tags{% endif %}",
    "respond with {\"name\": function name, \"parameters\": dictionary}"};
enum { HERMES, LLAMA };

/* What was found: the content, then each call as "[name arguments]". */
static void parse(struct text *out, int which, const char *answer, size_t first,
                  size_t each)
{
    struct chat_call_parser p = {
        .format = chat_call_format_of(templates[which], strlen(templates[which]))};
    const size_t n = strlen(answer);
    json_t *one;
    size_t i;

    assert_non_null(p.format);
    for (size_t at = 0; at < n;) {
        const size_t part = at == 0 && first ? first : each;

        chat_call_parser_put(&p, answer + at, at + part < n ? part : n - at);
        at += part;
    }
    chat_call_parser_end(&p);
    assert_ok(chat_call_parser_rc(&p));
    text_put(out, p.content.p ? p.content.p : "", p.content.n);
    json_array_foreach(p.calls, i, one)
    {
        json_t *args;

        text_printf(out, "[%s %s]", json_string_value(json_object_get(one, "name")),
                    json_string_value(json_object_get(one, "arguments")));
        assert_non_null(
            args = json_loads(json_string_value(json_object_get(one, "arguments")), 0,
                              NULL));
        json_decref(args);
    }
    assert_int_equal(p.n_calls, json_array_size(p.calls));
    text_put(out, "", 1);
    chat_call_parser_fini(&p);
}

TEST(whole_and_in_parts)
{
#define CALL                                                                             \
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1.50, "                      \
    "\"}\\\"\"]}}\n</tool_call>"
    static const struct {
        int which;
        const char *answer, *want;
    } cases[] = {
        {HERMES, CALL, "[f {\"a\": [1.50, \"}\\\"\"]}]"},
        {HERMES, "Let me see.\n\n" CALL "\n" CALL "\n",
         "Let me see.[f {\"a\": [1.50, \"}\\\"\"]}][f {\"a\": [1.50, \"}\\\"\"]}]"},
        {HERMES, CALL " so \xc3\xa9", " so \xc3\xa9[f {\"a\": [1.50, \"}\\\"\"]}]"},
        {HERMES,
         "a < b <tool <<tool_call>{\"arguments\":{},\"name\":\"\xc3\xa9\"}</tool_call>",
         "a < b <tool <[\xc3\xa9 {}]"},
        {HERMES,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"t\":\"</tool_call>\"}}</tool_call>",
         "[f {\"t\":\"</tool_call>\"}]"},
        /* The end of the answer stands for the closing mark. */
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n", "[f {}]"},
        /* Not calls, and so as they are. */
        {HERMES, " plain {\"name\": 1} ", " plain {\"name\": 1} "},
        {HERMES, "<tool_call>\nf(1)</tool_call>", "<tool_call>\nf(1)</tool_call>"},
        {HERMES, "<tool_call>{\"name\":\"f\"}</tool_call>x",
         "<tool_call>{\"name\":\"f\"}</tool_call>x"},
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":3}</tool_call>",
         "<tool_call>{\"name\":\"f\",\"arguments\":3}</tool_call>"},
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{]}}",
         "<tool_call>{\"name\":\"f\",\"arguments\":{]}}"},
        {HERMES, "<tool_call>{\"name\":\"f\",\"argum",
         "<tool_call>{\"name\":\"f\",\"argum"},
        {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool>",
         "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool>"},
        {HERMES, "<tool", "<tool"},
        {HERMES, "", ""},
        {LLAMA, "{\"name\": \"f\", \"parameters\": {\"b\": {}}}", "[f {\"b\": {}}]"},
        {LLAMA,
         "\n{\"parameters\":{},\"name\":\"f\"}; "
         "{\"name\":\"g\",\"parameters\":{\"name\":2}}\n",
         "[f {}][g {\"name\":2}]"},
        {LLAMA, "It is {\"name\": \"f\", \"parameters\": {}}",
         "It is {\"name\": \"f\", \"parameters\": {}}"},
        {LLAMA, "{\"answer\": 4}", "{\"answer\": 4}"},
        {LLAMA, "; {\"name\": \"f\", \"parameters\": {}}",
         "; {\"name\": \"f\", \"parameters\": {}}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t n = strlen(cases[i].answer);

        for (size_t first = 0; first <= n; first++) { /* 0: byte by byte */
            struct text got = {0};

            parse(&got, cases[i].which, cases[i].answer, first, first ? n : 1);
            assert_ok(got.rc);
            if (strcmp(got.p, cases[i].want) != 0)
                fail_msg("%s: first %zu bytes: got %s", cases[i].answer, first, got.p);
            text_fini(&got);
        }
    }
}

TEST(templates_without_a_known_form)
{
    static const char *const others[] = {
        "", "{{ tools }}", "[TOOL_CALLS]",
        "<tool_call><function=f></function></tool_call>"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_null(chat_call_format_of(others[i], strlen(others[i])));
    for (int i = 0; i < 2; i++)
        assert_non_null(chat_call_format_of(templates[i], strlen(templates[i])));
}
