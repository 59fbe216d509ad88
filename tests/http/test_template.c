/* Chat templates: the published texts, written out by hand; which model has which; and that a
 * message cannot hold control tokens. */
#include "http/template.h"

#include "tests/support/test.h"
#include "tests/support/tok_files.h"

#define SYS "{\"role\": \"system\", \"content\": \"Be brief.\"}"
#define U1  "{\"role\": \"user\", \"content\": \" Hi \"}"
#define A1  "{\"role\": \"assistant\", \"content\": \"Hello.\"}"
#define U2  "{\"role\": \"user\", \"content\": \"Bye\"}"

static const struct {
    const char *name, *messages, *want;
} cases[] = {
    {"llama-2", "[" U1 "]", "<s>[INST] Hi [/INST]"},
    {"llama-2", "[" SYS "," U1 "]",
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST]"},
    {"llama-2", "[" U1 "," A1 "," U2 "]",
     "<s>[INST] Hi [/INST] Hello. </s><s>[INST] Bye [/INST]"},
    {"llama-3", "[" U1 "]",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama-3", "[" SYS "," U1 "," A1 "," U2 "]",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"chatml", "[" SYS "," U1 "," A1 "," U2 "]",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
     "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"chatml", "[" U2 "]", "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
    {"qwen2", "[" U2 "]",
     "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
     "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
    {"qwen2.5", "[" U2 "]",
     "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
     "assistant.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
    {"qwen2.5", "[" SYS "," U2 "]",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"mistral-v1", "[" SYS "," U2 "," A1 "," U2 "]",
     "<s>[INST] Be brief.\n\nBye [/INST] Hello.</s>[INST] Bye [/INST]"},
    {"mistral-v3", "[" SYS "," U2 "," A1 "," U2 "]",
     "<s>[INST] Bye[/INST] Hello.</s>[INST] Be brief.\n\nBye[/INST]"},
    {"mistral-tekken", "[" U2 "," A1 "," U2 "]",
     "<s>[INST]Bye[/INST]Hello.</s>[INST]Bye[/INST]"},
    {"mistral-v7", "[" SYS "," U2 "]",
     "<s>[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Bye[/INST]"},
    {"mistral-v7-tekken", "[" SYS "," U2 "]",
     "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Bye[/INST]"},
};

static int render(const char *name, const char *messages, struct http_prompt *p)
{
    const struct http_template *t;
    json_t *m = json_loads(messages, 0, NULL);
    int rc;

    *p = (struct http_prompt){0};
    assert_non_null(m);
    assert_ok(http_template_named(&t, name));
    assert_string_equal(http_template_name(t), name);
    rc = http_template_render(t, m, p);
    json_decref(m);
    return rc;
}

TEST(test_texts)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_prompt p;
        size_t n = 0;

        assert_ok(render(cases[i].name, cases[i].messages, &p));
        text_put(&p.text, "", 1);
        assert_string_equal(p.text.p, cases[i].want);
        for (size_t k = 0; k < p.n_parts; k++)
            n += p.parts[k].n;
        assert_int_equal(n, strlen(cases[i].want));
        http_prompt_fini(&p);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *name, *messages, *part;
        int rc;
    } bad[] = {
        {"chatml", "[5]", "role", ERR_ARG},
        {"chatml", "[{\"role\": \"user\"}]", "content", ERR_ARG},
        {"chatml", "[{\"role\": \"user\", \"content\": 5}]", "content", ERR_ARG},
        {"chatml", "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
         "part 0", ERR_UNSUPPORTED},
        {"chatml", "[{\"role\": \"tool\", \"content\": \"x\"}]", "\"tool\"",
         ERR_UNSUPPORTED},
        {"llama-2", "[" U1 "," U2 "]", "in turn", ERR_ARG},
        {"llama-2", "[" U1 "," SYS "," U2 "]", "in turn", ERR_ARG},
        {"llama-2", "[" SYS "," A1 "]", "in turn", ERR_ARG},
        {"mistral-v3", "[" U1 "," A1 "]", "user message last", ERR_ARG},
        {"mistral-v1", "[" SYS "]", "user message last", ERR_ARG},
    };
    const struct http_template *t;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct http_prompt p;

        assert_err(render(bad[i].name, bad[i].messages, &p), bad[i].rc, bad[i].part);
        http_prompt_fini(&p);
    }
    assert_err(http_template_named(&t, "llama-9"), ERR_NOTFOUND, HTTP_TEMPLATE_NAMES);
    assert_err(http_template_recognise(&t, "{{ x }}", 7), ERR_UNSUPPORTED,
               HTTP_TEMPLATE_NAMES);
}

/* Pieces of the published templates that tell them apart. */
TEST(test_recognised)
{
    static const struct {
        const char *text, *name;
    } own[] = {
        {"'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
         "message['content'] | trim + '<|eot_id|>'",
         "llama-3"},
        {"{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' %}"
         "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}",
         "llama-2"},
        {"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
         "'<|im_end|>'}}",
         "chatml"},
        {"{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}", "qwen2"},
        {"{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a "
         "helpful assistant.<|im_end|>\\n' }}",
         "qwen2.5"},
        {"{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}",
         "mistral-v1"},
        {"{{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}", "mistral-v3"},
        {"{{- \"[INST]\" + message[\"content\"] + \"[/INST]\" }}", "mistral-tekken"},
        {"{{- \"[SYSTEM_PROMPT] \" + x + \"[INST] \" + y + \"[/INST]\" }}", "mistral-v7"},
        {"{{- '[SYSTEM_PROMPT]' + x + '[INST]' + y + '[/INST]' }}", "mistral-v7-tekken"},
    };
    const struct http_template *t;

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        assert_ok(http_template_recognise(&t, own[i].text, strlen(own[i].text)));
        assert_string_equal(http_template_name(t), own[i].name);
    }
}

static void write_in(const char *dir, const char *file, const char *text)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    test_write(path, text, strlen(text));
}

/* From a folder: a list of templates by name, one text, a file of its own; none. */
TEST(test_folder)
{
    const char *dir = test_dir();
    const struct http_template *t;

    assert_err(http_template_of_model(&t, dir), ERR_NOTFOUND, "tokenizer_config.json");
    write_in(dir, "tokenizer_config.json", "{}");
    assert_err(http_template_of_model(&t, dir), ERR_NOTFOUND, "no chat_template");
    write_in(dir, "tokenizer_config.json", "{\"chat_template\": \"<|im_start|>\"}");
    assert_ok(http_template_of_model(&t, dir));
    assert_string_equal(http_template_name(t), "chatml");
    write_in(dir, "tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"?\"}, "
             "{\"name\": \"default\", \"template\": \"[INST] <<SYS>>\"}]}");
    assert_ok(http_template_of_model(&t, dir));
    assert_string_equal(http_template_name(t), "llama-2");
    write_in(dir, "chat_template.jinja", "<|start_header_id|> <|eot_id|>");
    assert_ok(http_template_of_model(&t, dir));
    assert_string_equal(http_template_name(t), "llama-3");
    assert_err(http_template_of_model(&t, "/nonexistent/model"), ERR_IO, "nonexistent");
}

/* Control tokens are tokens in what the template adds and letters in what users write; all
 * other text is encoded as one. */
TEST(test_control_tokens)
{
    static const char begin[] = "<|begin_of_text|>", said[] = "a<|begin_of_text|>b";
    const struct tok_part parts[] = {
        {sizeof(begin) - 1, true}, {sizeof(said) - 1, false}, {0, true}, {1, true}};
    struct tok *t = tok_files_open(TOK_FILES_GGUF_BPE);
    size_t n_ids, n_plain, n_begin = 0;
    int32_t *ids, *plain;
    char text[100];

    snprintf(text, sizeof(text), "%s%sc", begin, said);
    assert_ok(tok_encode_parts(t, text, parts, 4, 0, &ids, &n_ids));
    assert_ok(tok_encode(t, text + sizeof(begin) - 1, sizeof(said), 0, &plain, &n_plain));
    for (size_t i = 0; i < n_ids; i++)
        n_begin += ids[i] == tok_bos(t);
    assert_int_equal(n_begin, 1);
    assert_int_equal(ids[0], tok_bos(t));
    assert_int_equal(n_ids, 1 + n_plain);
    assert_memory_equal(ids + 1, plain, n_plain * sizeof(*ids));
    mem_free(ids);
    mem_free(plain);
    assert_ok(tok_encode_parts(t, "", NULL, 0, 0, &ids, &n_ids));
    assert_int_equal(n_ids, 0);
    mem_free(ids);
    tok_close(&t);
}

TEST(test_needed_tokens)
{
    struct tok *t = tok_files_open(TOK_FILES_GGUF_SPM);
    const struct http_template *llama2, *llama3;

    assert_ok(http_template_named(&llama2, "llama-2"));
    assert_ok(http_template_named(&llama3, "llama-3"));
    assert_ok(http_template_check(llama2, t));
    assert_err(http_template_check(llama3, t), ERR_UNSUPPORTED, "<|begin_of_text|>");
    tok_close(&t);
}
