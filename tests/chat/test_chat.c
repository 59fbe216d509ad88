/* Conversations: which template a model has, the templates for models without one, messages as
 * templates expect them, and what is refused. */
#include "chat/chat.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "format/gguf_write.h"
#include "tests/support/faults.h"
#include "tests/support/test.h"
#include "tests/support/tok_files.h"

#define SYS "{\"role\": \"system\", \"content\": \"Be brief.\"}"
#define U1  "{\"role\": \"user\", \"content\": \" Hi \"}"
#define A1  "{\"role\": \"assistant\", \"content\": \"Hello.\"}"
#define U2  "{\"role\": \"user\", \"content\": \"Bye\"}"

static void write_in(const char *dir, const char *file, const char *text)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    test_write(path, text, strlen(text));
}

/* A folder with these two files; NULL: without it. */
static const char *folder(const char *jinja, const char *config)
{
    const char *dir = test_path("model");

    (void)mkdir(dir, 0777);
    unlink(test_path("model/chat_template.jinja"));
    unlink(test_path("model/tokenizer_config.json"));
    if (jinja)
        write_in(dir, "chat_template.jinja", jinja);
    if (config)
        write_in(dir, "tokenizer_config.json", config);
    return dir;
}

static int open_chat(struct chat **out, const char *model, const char *name,
                     const struct tok *tok)
{
    return chat_open(out,
                     &(struct chat_opts){.model = model, .template = name, .tok = tok});
}

/* The prompt of a request; NULL: refused, see err_msg(). */
static char *prompt_of(const struct chat *c, const json_t *body, int *rc)
{
    struct chat_conversation in = {.messages = json_object_get(body, "messages"),
                                   .tools = json_object_get(body, "tools"),
                                   .more = json_object_get(body, "more"),
                                   .continue_final =
                                       json_is_true(json_object_get(body, "continue")),
                                   .max_bytes = 10000};
    struct chat_prompt p = {0};
    char *text = NULL;

    *rc = chat_write(c, &in, &p);
    if (*rc == OK) {
        text_put(&p.text, "", 1);
        *rc = p.text.rc;
    }
    if (*rc == OK) {
        text = mem_strdup(MEM_TEST, p.text.p);
        *rc = text ? OK : ERR_NOMEM;
    }
    chat_prompt_fini(&p);
    return text;
}

static char *prompt(const struct chat *c, const char *body, int *rc)
{
    json_t *b = json_loads(body, 0, NULL);
    char *text;

    assert_non_null(b);
    text = prompt_of(c, b, rc);
    json_decref(b);
    return text;
}

static void assert_prompt(const struct chat *c, const char *body, const char *want)
{
    int rc;
    char *got = prompt(c, body, &rc);

    if (!got)
        fail_msg("%s: %s", body, err_msg());
    assert_string_equal(got, want);
    mem_free(got);
}

static void assert_refused(const struct chat *c, const char *body, int code,
                           const char *part)
{
    int rc;
    char *got = prompt(c, body, &rc);

    if (got || rc != code || !strstr(err_msg(), part))
        fail_msg("%s: got %s \"%s\"", body, got ? got : err_name(rc), err_msg());
}

/* ---- templates for models without one ---- */

/* Mistral's and Llama 2's tokens; llama-3 and chatml need others. */
static const struct {
    const char *name, *messages, *want;
} known[] = {
    {"llama-2", "[" U1 "]", "<s>[INST] Hi [/INST]"},
    {"llama-2", "[" SYS "," U1 "]",
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST]"},
    {"llama-2", "[" U1 "," A1 "," U2 "]",
     "<s>[INST] Hi [/INST] Hello. </s><s>[INST] Bye [/INST]"},
    {"mistral-v1", "[" SYS "," U2 "," A1 "," U2 "]",
     "<s>[INST] Be brief.\n\nBye [/INST] Hello.</s>[INST] Bye [/INST]"},
};

TEST(known_templates)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    const char *dir = folder(NULL, NULL);
    struct chat *c;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        char body[500];

        assert_ok(open_chat(&c, dir, known[i].name, tok));
        assert_string_equal(chat_origin(c), known[i].name);
        snprintf(body, sizeof(body), "{\"messages\": %s}", known[i].messages);
        assert_prompt(c, body, known[i].want);
        chat_close(&c);
    }
    assert_ok(open_chat(&c, dir, "llama-2", tok));
    assert_refused(c, "{\"messages\": [" U1 "," U2 "]}", ERR_ARG, "in turn");
    assert_refused(c, "{\"messages\": [" U1 "," SYS "," U2 "]}", ERR_ARG, "in turn");
    assert_refused(c, "{\"messages\": [" SYS "," A1 "]}", ERR_ARG, "in turn");
    chat_close(&c);
    assert_err(open_chat(&c, dir, "llama-3", tok), ERR_UNSUPPORTED, "<|begin_of_text|>");
    assert_err(open_chat(&c, dir, "chatml", tok), ERR_UNSUPPORTED, "<|im_start|>");
    assert_err(open_chat(&c, dir, "mistral-v3", tok), ERR_UNSUPPORTED, "[INST]");
    assert_err(open_chat(&c, dir, "llama-9", tok), ERR_NOTFOUND, CHAT_KNOWN_NAMES);
    tok_close(&tok);
}

/* A vocabulary with the control tokens of all known templates. */
static struct tok *wide_vocabulary(void)
{
    static const char *const words[] = {"<s>",
                                        "</s>",
                                        "<|im_start|>",
                                        "<|im_end|>",
                                        "[INST]",
                                        "[/INST]",
                                        "<|begin_of_text|>",
                                        "<|start_header_id|>",
                                        "<|eot_id|>",
                                        "<|end_header_id|>"};
    json_t *added = json_array(), *vocab = json_object(), *j;
    const char *path = test_path("wide.json");
    struct tok *tok;

    for (int i = 0; i < 10; i++) {
        json_object_set_new(vocab, words[i], json_integer(i));
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", i, "content",
                                               words[i], "special", 1));
    }
    json_object_set_new(vocab, "a", json_integer(10));
    j = json_pack("{s:o, s:{s:s, s:b}, s:{s:s, s:o, s:[]}}", "added_tokens", added,
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "model",
                  "type", "BPE", "vocab", vocab, "merges");
    assert_non_null(j);
    assert_ok(json_write_file(j, path));
    json_decref(j);
    assert_ok(tok_open(&tok, path, NULL));
    return tok;
}

TEST(known_templates_of_control_tokens)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"chatml",
         "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
         "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
         "<|im_start|>assistant\n"},
        {"llama-3", "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe "
                    "brief.<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral-v3", "<s>[INST] Bye[/INST] Hello.</s>[INST] Be brief.\n\n Hi [/INST]"},
        {"mistral-tekken", "<s>[INST]Bye[/INST]Hello.</s>[INST]Be brief.\n\n Hi [/INST]"},
    };
    struct tok *tok = wide_vocabulary();
    const char *dir = folder(NULL, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    struct chat *c;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(open_chat(&c, dir, cases[i].name, tok));
        assert_prompt(c, "{\"messages\": [" SYS "," U2 "," A1 "," U1 "]}", cases[i].want);
        chat_close(&c);
    }
    tok_close(&tok);
}

/* ---- a model's own ---- */

#define SAY "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
#define HI  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"

TEST(folders)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat *c;

    assert_err(open_chat(&c, folder(NULL, NULL), NULL, tok), ERR_NOTFOUND,
               "no chat template");
    assert_err(open_chat(&c, folder(NULL, "{}"), NULL, tok), ERR_NOTFOUND,
               "no chat template");
    assert_err(open_chat(&c, folder(NULL, "{"), NULL, tok), ERR_FORMAT,
               "tokenizer_config.json");
    assert_err(open_chat(&c, "/nonexistent/model", NULL, tok), ERR_IO, "nonexistent");
    assert_err(open_chat(&c, folder("{{ x | nope }}", NULL), NULL, tok), ERR_UNSUPPORTED,
               "model: chat template: line 1, column 8: the filter \"nope\"");

    assert_ok(open_chat(&c,
                        folder(NULL, "{\"chat_template\": \"one {{ messages[0].content "
                                     "}}{{ messages[0].role }}\"}"),
                        NULL, tok));
    assert_prompt(c, HI, "one Hiuser");
    chat_close(&c);

    assert_ok(open_chat(
        &c, folder("file {{ messages | tojson }}", "{\"chat_template\": \"one\"}"), NULL,
        tok));
    assert_prompt(c, HI, "file [{\"role\": \"user\", \"content\": \"Hi\"}]");
    chat_close(&c);
    tok_close(&tok);
}

static const char *gguf(const char *template, const char *tool_use)
{
    const char *path = test_path("model.gguf");
    struct gguf_records metadata = {0}, tensors = {0};
    struct text file = {0};

    gguf_put_key_str(&metadata, "general.architecture", "llama");
    if (template)
        gguf_put_key_str(&metadata, "tokenizer.chat_template", template);
    if (tool_use)
        gguf_put_key_str(&metadata, "tokenizer.chat_template.tool_use", tool_use);
    gguf_put_key_u32(&metadata, "tokenizer.ggml.unknown_token_id", 0);
    assert_ok(gguf_put_head(&file, &metadata, &tensors));
    test_write(path, file.p, file.n);
    text_fini(&metadata.text);
    text_fini(&tensors.text);
    text_fini(&file);
    return path;
}

/* A model whose tokenizer is elsewhere may have its template there. */
TEST(template_of_the_tokenizer)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat_opts o = {.model = gguf(NULL, NULL), .tok = tok};
    struct chat *c;

    o.tokenizer = folder("T {{ messages }}{{ bos_token }}", "{\"bos_token\": \"<b>\"}");
    assert_ok(chat_open(&c, &o));
    assert_prompt(c, "{\"messages\": []}", "T []<b>");
    chat_close(&c);
    o.model = gguf("M {{ messages }}", NULL);
    assert_ok(chat_open(&c, &o));
    assert_prompt(c, "{\"messages\": []}", "M []");
    chat_close(&c);
    tok_close(&tok);
}

/* Several templates by name: one is for requests with tools, and any can be asked for. */
TEST(named_templates)
{
    static const char config[] =
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T {{ messages | "
        "tojson }}"
        "{{ tools | length }}\"}, {\"name\": \"default\", \"template\": \"D {{ messages "
        "| tojson "
        "}}\"}, {\"name\": \"rag\", \"template\": \"R {{ messages | tojson }}\"}]}";
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    const char *dir = folder(NULL, config);
    struct chat *c;

    assert_ok(open_chat(&c, dir, NULL, tok));
    assert_prompt(c, "{\"messages\": []}", "D []");
    assert_prompt(c, "{\"messages\": [], \"tools\": [{}]}", "T []1");
    chat_close(&c);
    assert_ok(open_chat(&c, dir, "rag", tok));
    assert_prompt(c, "{\"messages\": []}", "R []");
    chat_close(&c);
    assert_err(open_chat(&c, dir, "other", tok), ERR_NOTFOUND, "other");
    test_write(test_path("mine.jinja"), "M {{ messages | tojson }}", 25);
    assert_ok(open_chat(&c, dir, test_path("mine.jinja"), tok));
    assert_prompt(c, "{\"messages\": []}", "M []");
    assert_string_equal(chat_origin(c), test_path("mine.jinja"));
    chat_close(&c);
    tok_close(&tok);
}

TEST(gguf_files)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat *c;

    assert_err(open_chat(&c, gguf(NULL, NULL), NULL, tok), ERR_NOTFOUND,
               "no chat template");
    assert_ok(open_chat(
        &c,
        gguf("{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}|" SAY,
             "tools {{ tools | length }}{{ messages }}"),
        NULL, tok));
    assert_prompt(c, HI, "<s></s><unk>|user: Hi\n");
    assert_prompt(c, "{\"messages\": [], \"tools\": [{}, {}]}", "tools 2[]");
    chat_close(&c);
    assert_ok(open_chat(&c, gguf("x", "t {{ messages }}"), "tool_use", tok));
    assert_prompt(c, "{\"messages\": []}", "t []");
    chat_close(&c);
    tok_close(&tok);
}

/* The texts of special tokens: the configuration's, else the tokenizer's; null: there is none. */
TEST(special_tokens)
{
    static const struct {
        const char *config, *want;
    } cases[] = {
        {"{}", "<s></s>[]"},
        {"{\"bos_token\": null}", "</s>[]"},
        {"{\"bos_token\": \"<b>\", \"eos_token\": {\"content\": \"<e>\"}, \"pad_token\": "
         "\"<p>\"}",
         "<b><e>[]<p>"},
    };
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chat *c;

        assert_ok(open_chat(
            &c,
            folder("{{ bos_token }}{{ eos_token }}{{ messages }}{{ pad_token }}",
                   cases[i].config),
            NULL, tok));
        assert_prompt(c, "{\"messages\": []}", cases[i].want);
        chat_close(&c);
    }
    tok_close(&tok);
}

/* ---- messages ---- */

#define CALL(arguments)                                                                  \
    "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": "      \
    "[{\"id\": "                                                                         \
    "\"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", "                    \
    "\"arguments\": " arguments "}}]}]}"

TEST(messages)
{
    static const char calls[] = "{% for m in messages %}{{ m.role }}={{ m.content }}"
                                "{% for c in m.tool_calls %}{{ c.function.arguments.town "
                                "}}{{ c.function.arguments }}"
                                "{% endfor %};{% endfor %}";
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat *c;

    assert_ok(open_chat(&c, folder(calls, NULL), NULL, tok));
    assert_prompt(c, CALL("\"{\\\"town\\\": \\\"Rome\\\"}\""),
                  "assistant=NoneRome{'town': 'Rome'};");
    assert_prompt(c, CALL("{\"town\": \"Oslo\"}"), "assistant=NoneOslo{'town': 'Oslo'};");
    assert_refused(c, CALL("\"{\""), ERR_FORMAT, "messages: 0: tool_calls: 0: arguments");
    assert_prompt(
        c,
        "{\"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": "
        "\"5\"}, {\"role\": \"developer\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
        "tool=5;system=ab;");
    assert_refused(c, "{\"messages\": [5]}", ERR_ARG, "role");
    assert_refused(c, "{\"messages\": [{\"role\": \"user\"}]}", ERR_ARG, "content");
    assert_refused(c, "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", ERR_ARG,
                   "content");
    assert_refused(c, "{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
                   ERR_ARG, "content");
    assert_refused(c,
                   "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
                   "\"image_url\"}]}]}",
                   ERR_UNSUPPORTED, "part 0");
    assert_refused(c,
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": "
                   "\"ann\"}]}",
                   ERR_ARG, "messages: 0: name");
    assert_refused(c, "{\"messages\": [], \"tools\": [{}]}", ERR_ARG, "tools");
    assert_refused(c, "{\"messages\": [], \"more\": {\"enable_thinking\": true}}",
                   ERR_ARG, "enable_thinking");
    assert_refused(c, "{\"messages\": [], \"more\": {\"messages\": []}}", ERR_ARG,
                   "messages");
    assert_refused(c, "{\"messages\": [], \"more\": {\"bos_token\": \"x\"}}", ERR_ARG,
                   "bos_token");
    chat_close(&c);

    assert_ok(open_chat(&c,
                        folder("{{ messages[0].role }}{{ messages[0].content }}"
                               "{{ tools }}{{ x }}{{ '' if 'developer' }}",
                               NULL),
                        NULL, tok));
    assert_prompt(
        c,
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"a\"}], \"tools\": "
        "[{\"a\": 1}], \"more\": {\"x\": 7}}",
        "developera[{'a': 1}]7");
    chat_close(&c);
    tok_close(&tok);
}

/* A template for lists of parts gets lists, whatever the client sent. */
TEST(contents_in_parts)
{
    static const char parts[] =
        "{% for m in messages %}{{ m.role }}:{% for p in m.content %}"
        "{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}"
        "{% endfor %}";
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat *c;

    assert_ok(open_chat(&c, folder(parts, NULL), NULL, tok));
    assert_prompt(c, HI, "user:[Hi]");
    assert_prompt(
        c,
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
        "user:[a][b]");
    chat_close(&c);
    tok_close(&tok);
}

/* Parts were glued for a template that reads lists and texts: "ab". One that writes a list as a
 * value reads none; one that reads the first part alone gets one. */
TEST(templates_of_texts_and_parts)
{
    static const char both[] =
        "{% for m in messages %}{% if m.content is string %}({{ m.content }})"
        "{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}"
        "{% endfor %}";
    static const char texts[] = "{% for m in messages %}({{ m.content }}){% endfor %}";
    static const char first[] =
        "{% for m in messages %}({{ m.content[0].text }}){% endfor %}";
    static const char list[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}";
    static const char empty[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": []}, "
        "{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"user\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"\"}]}]}";
    static const struct {
        const char *template, *list, *text, *empty;
    } cases[] = {{both, "[a][b]", "(Hi)", "()[]"},
                 {texts, "(ab)", "(Hi)", "()()()"},
                 {first, "(ab)", "(Hi)", "()()()"}};
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    struct chat *c;

    for (int i = 0; i < 3; i++) {
        char template[300];

        /* Roles are read, as every template does. */
        snprintf(template, sizeof(template),
                 "{%% set r = messages[0].role %%}"
                 "{%% for m in messages %%}{%% set r = m.role %%}{%% endfor %%}%s",
                 cases[i].template);
        assert_ok(open_chat(&c, folder(template, NULL), NULL, tok));
        assert_prompt(c, list, cases[i].list);
        assert_prompt(c, HI, cases[i].text);
        assert_prompt(c, empty, cases[i].empty);
        chat_close(&c);
    }
    tok_close(&tok);
}

/* A prompt longer than asked for is told from other limits. */
/* The prompt ends where the last message does, whatever the template writes behind it. */
TEST(continued_answers)
{
    static const char plain[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    static const char trims[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}";
    static const char shouts[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content | upper }}</>{% endfor %}";
    static const struct {
        const char *template, *last, *want; /* want NULL: refused as `why` says */
        const char *why;
    } cases[] = {
        {plain, "{\"role\": \"assistant\", \"content\": \"Hi \"}",
         "<user>Hi Hi </><assistant>Hi ", ""},
        {trims, "{\"role\": \"assistant\", \"content\": \" aab \"}",
         "<user>Hi Hi</><assistant>aab", ""},
        {plain,
         "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": "
         "\"aa\"}]}",
         "<user>Hi Hi </><assistant>aa", ""},
        {shouts, "{\"role\": \"assistant\", \"content\": \"x\"}", NULL,
         "template changes its text"},
        {plain, "{\"role\": \"user\", \"content\": \"x\"}", NULL,
         "expected an assistant's message"},
        {plain, "{\"role\": \"assistant\", \"content\": \"\"}", NULL,
         "expected an assistant's"},
    };
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_BPE);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[400];
        struct chat *c;
        int rc;

        assert_ok(open_chat(&c, folder(cases[i].template, NULL), NULL, tok));
        snprintf(body, sizeof(body),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi Hi \"}, %s], "
                 "\"continue\": true}",
                 cases[i].last);
        if (cases[i].want) {
            assert_prompt(c, body, cases[i].want);
        } else {
            assert_null(prompt(c, body, &rc));
            assert_err(rc, ERR_ARG, cases[i].why);
        }
        chat_close(&c);
    }
    tok_close(&tok);
}

TEST(too_long)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    json_t *messages = json_array();
    struct chat_conversation in = {.messages = messages, .max_bytes = 9};
    struct chat_prompt p = {0};
    struct chat *c;

    assert_ok(open_chat(&c, folder("0123456789{{ messages }}", NULL), NULL, tok));
    assert_err(chat_write(c, &in, &p), ERR_LIMIT, "9 bytes");
    assert_true(in.too_long);
    chat_prompt_fini(&p);
    chat_close(&c);
    assert_ok(open_chat(&c, folder("{{ range(999999) }}", NULL), NULL, tok));
    assert_err(chat_write(c, &in, &p), ERR_LIMIT, "range");
    assert_false(in.too_long);
    chat_prompt_fini(&p);
    chat_close(&c);
    json_decref(messages);
    tok_close(&tok);
}

/* ---- control tokens and memory ---- */

/* Control tokens are tokens in what the template adds and letters in what users write; all
 * other text is encoded as one. */
TEST(control_tokens)
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

static int open_and_write(const char *model, const char *name, const struct tok *tok,
                          const json_t *body)
{
    struct chat *c;
    int rc = open_chat(&c, model, name, tok);

    if (rc == OK)
        mem_free(prompt_of(c, body, &rc));
    chat_close(&c);
    return rc;
}

TEST(out_of_memory)
{
    struct tok *tok = tok_files_open(TOK_FILES_GGUF_SPM);
    json_t *body = json_loads(CALL("\"{}\""), 0, NULL);
    const char *dir = folder(
        NULL, "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages "
              "}}\"}, {\"name\": \"tool_use\", \"template\": \"{{ tools }}\"}]}");
    const char *file = gguf("{{ messages }}", "x");

    assert_true(test_allocations(open_and_write(dir, NULL, tok, body), true) > 20);
    assert_true(test_allocations(open_and_write(file, NULL, tok, body), true) > 20);
    json_decref(body);
    tok_close(&tok);
}
