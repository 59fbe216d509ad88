/* sandwich chat: a conversation with a model on the terminal, or one answer to what is piped in. */
#include "cli/cli.h"
#include "cli/offload.h"
#include "cli/sampling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "serve/serve.h"
#include "tokenizer/tokenizer.h"

struct chat_flags {
    struct serve_opts serve; /* first: its table's offsets hold here */
    struct serve_sampling sampling;
    char *prompt, *system, *chat_template, *grammar, *json_schema;
    int64_t n_new, n_gpu_layers;
};
#define OPT_OF struct chat_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, prompt, NULL,
            "Answer this message and exit. What is piped in is appended to it.",
            .letter = 'p'),
    OPT_ROW(STR, system, NULL,
            "System message, which tells the model how to answer. /system changes it.",
            .letter = 's', .alias = "sys|system_prompt"),
    OPT_ROW(
        STR, chat_template, NULL,
        "Chat template in place of the model's own: a file, one of the model's own by "
        "name, or " CHAT_KNOWN_NAMES ".",
        .unit = "FILE|NAME"),
    OPT_ROW(INT, n_new, "0",
            "End each answer after N tokens. 0: when the model ends it, or the context "
            "is full.",
            .unit = "tok", .min = 0, .max = 1 << 24, .letter = 'n',
            .alias = "max_tokens|n_predict"),
    CLI_SAMPLING_ROWS("0.7"),
    CLI_NGL_ROW(n_gpu_layers),
    {0},
};

struct conversation {
    const struct chat_flags *f;
    struct serve *serve;
    struct chat *chat;
    json_t *messages;
    struct serve_grammar grammar;
    struct tok_stream stream;
    char *piece; /* [capacity] text of one token */
    size_t capacity;
    int64_t n_answers;

    /* of the present answer */
    struct text answer;
    enum serve_finish finish;
    char why[256];
};

/* ---- one answer ---- */

static void put(struct conversation *c, size_t n)
{
    text_put(&c->answer, c->piece, n);
    fwrite(c->piece, 1, n, stdout);
    fflush(stdout);
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct conversation *c = ctx;
    size_t n = 0;

    (void)request, (void)logits;
    c->finish = finish;
    if (finish == SERVE_ERROR)
        snprintf(c->why, sizeof(c->why), "%s", err_msg());
    if (id >= 0 && !serve_is_stop(c->serve, id) &&
        tok_stream_put(&c->stream, id, c->piece, c->capacity, &n) == OK)
        put(c, n);
}

/* The oldest question and its answer; the system message stays. false: there is only one. */
static bool forget_oldest(struct conversation *c)
{
    const char *role = json_str_at(json_array_get(c->messages, 0), "role", "");
    size_t first = strcmp(role, "system") == 0;

    if (json_array_size(c->messages) < first + 3)
        return false;
    json_array_remove(c->messages, first);
    json_array_remove(c->messages, first);
    return true;
}

static int encode(struct conversation *c, int32_t **ids, size_t *n)
{
    struct chat_conversation in = {.messages = c->messages,
                                   .time_s = (int64_t)time(NULL),
                                   .max_bytes = 4 * tok_longest(c->serve->tok) *
                                                (size_t)c->serve->max_tok};
    struct chat_prompt p = {0};
    int rc = chat_write(c->chat, &in, &p);

    *ids = NULL;
    if (rc == OK)
        rc = tok_encode_parts(c->serve->tok, p.text.p ? p.text.p : "", p.parts, p.n_parts,
                              0, ids, n);
    if (rc == OK && *n >= (size_t)c->serve->max_tok)
        rc = err_set(ERR_LIMIT,
                     "the conversation has %zu tokens and leaves no room for an answer: "
                     "expected fewer than %lld (--max-tok)",
                     *n, (long long)c->serve->max_tok);
    else if (rc == ERR_LIMIT && !in.too_long)
        rc = err_set(ERR_ARG, "%s", err_msg()); /* of the template's work */
    if (rc != OK) {
        mem_free(*ids);
        *ids = NULL;
    }
    chat_prompt_fini(&p);
    return rc;
}

/* The conversation as tokens, without its oldest messages where all are too many. */
static int encode_what_fits(struct conversation *c, int32_t **ids, size_t *n)
{
    int rc, n_left_out = 0;

    while ((rc = encode(c, ids, n)) == ERR_LIMIT && forget_oldest(c))
        n_left_out += 2;
    if (rc == OK && n_left_out > 0)
        fprintf(stderr, "(the %d oldest messages no longer fit into %lld tokens)\n",
                n_left_out, (long long)c->serve->max_tok);
    return rc;
}

static int generate(struct conversation *c, const int32_t *ids, size_t n)
{
    struct serve_request q = {.prompt = ids,
                              .n_prompt = (int64_t)n,
                              .max_new = c->serve->max_tok - (int64_t)n,
                              .sampling = c->f->sampling,
                              .grammar = c->grammar,
                              .on_token = on_token,
                              .ctx = c};
    bool busy = true;
    int64_t id;
    int rc;

    if (c->f->n_new > 0 && c->f->n_new < q.max_new)
        q.max_new = c->f->n_new;
    q.sampling.seed += c->n_answers++; /* the same question again has another answer */
    tok_stream_init(&c->stream, c->serve->tok);
    c->answer.n = 0;
    cli_catch_interrupts();
    rc = serve_submit(c->serve, &q, &id);
    while (rc == OK && busy) {
        if (cli_interrupted)
            serve_cancel(c->serve, id);
        rc = serve_step(c->serve, &busy);
    }
    if (rc == OK && c->finish == SERVE_ERROR)
        rc = err_set(ERR_STATE, "%s", c->why);
    put(c, tok_stream_flush(&c->stream, c->piece, c->capacity));
    putchar('\n');
    fflush(stdout);
    return rc == OK ? c->answer.rc : rc;
}

static int add_message(struct conversation *c, const char *role, const char *s, size_t n)
{
    json_t *text = json_stringn_lossy(s, n);

    if (json_array_append_new(
            c->messages, json_pack("{s:s, s:o}", "role", role, "content", text)) != 0)
        return err_set(ERR_NOMEM, "no memory for a message");
    return OK;
}

/* ERR_ARG, ERR_LIMIT, ERR_UNSUPPORTED: this message cannot be answered, and is forgotten. */
static int answer(struct conversation *c, const char *message, size_t n_bytes)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = add_message(c, "user", message, n_bytes);

    if (rc != OK)
        return rc;
    rc = encode_what_fits(c, &ids, &n);
    if (rc == OK)
        rc = generate(c, ids, n);
    mem_free(ids);
    if (rc != OK) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        return rc;
    }
    return add_message(c, "assistant", c->answer.p ? c->answer.p : "", c->answer.n);
}

/* ---- commands ---- */

/* The system message, or (empty) none. */
static int set_system(struct conversation *c, const char *text)
{
    json_t *first = json_array_get(c->messages, 0);

    if (strcmp(json_str_at(first, "role", ""), "system") == 0)
        json_array_remove(c->messages, 0);
    if (!*text)
        return OK;
    if (json_array_insert_new(c->messages, 0,
                              json_pack("{s:s, s:o}", "role", "system", "content",
                                        json_string_lossy(text))) != 0)
        return err_set(ERR_NOMEM, "no memory for a message");
    return OK;
}

static int reset(struct conversation *c, const char *rest)
{
    json_t *first = json_array_get(c->messages, 0);
    const bool system = strcmp(json_str_at(first, "role", ""), "system") == 0;

    (void)rest;
    while (json_array_size(c->messages) > (size_t)system)
        json_array_remove(c->messages, system);
    fprintf(stderr, "(the conversation begins again%s)\n",
            system ? ", with the system message" : "");
    return OK;
}

static int leave(struct conversation *c, const char *rest)
{
    (void)c, (void)rest;
    return ERR_CANCELED;
}

static int help(struct conversation *c, const char *rest);
static const struct command {
    const char *name, *argument, *help;
    int (*run)(struct conversation *c, const char *rest);
} commands[] = {
    {"/reset", "", "begin a new conversation; the system message stays", reset},
    {"/system", " TEXT", "set the system message; without TEXT there is none",
     set_system},
    {"/help", "", "this list", help},
    {"/exit", "", "end, as Ctrl-D does; Ctrl-C ends the present answer only", leave},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(struct conversation *c, const char *rest)
{
    (void)c, (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "%s%-*s %s\n", commands[i].name,
                14 - (int)strlen(commands[i].name), commands[i].argument,
                commands[i].help);
    fputs("A line that ends in \\ goes on in the next one.\n", stderr);
    return OK;
}

static int command(struct conversation *c, const char *line)
{
    size_t n = strcspn(line, " ");

    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && strncmp(line, commands[i].name, n) == 0)
            return commands[i].run(c, line + n + strspn(line + n, " "));
    fprintf(stderr, "unknown command %.*s; /help lists them\n", (int)n, line);
    return OK;
}

/* ---- the terminal ---- */

/* A message into *out, without its newline; it may have several lines. ERR_CANCELED: the end. */
static int read_message(struct text *out)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    bool more = true;

    out->n = 0;
    while (more && out->rc == OK) {
        fputs(out->n > 0 ? ". " : "> ", stderr);
        cli_catch_interrupts();
        n = getline(&line, &capacity, stdin);
        if (n < 0 && errno == EINTR && cli_interrupted == SIGINT) {
            fputs("\n(/exit or Ctrl-D ends the chat)\n", stderr);
            clearerr(stdin);
            cli_interrupted = 0;
            out->n = 0;
            continue;
        }
        if (n < 0)
            break;
        n -= n > 0 && line[n - 1] == '\n';
        more = n > 0 && line[n - 1] == '\\';
        text_put(out, line, (size_t)n - more);
        if (more)
            text_puts(out, "\n");
    }
    free(line); /* getline's own */
    text_put(out, "", 1);
    out->n -= out->rc == OK;
    return more && out->rc == OK ? ERR_CANCELED : out->rc;
}

/* A message that cannot be answered does not end the chat. */
static int talk(struct conversation *c)
{
    struct text line = {0};
    int rc;

    fprintf(stderr, "%s, %lld tokens of context; /help lists commands\n",
            chat_origin(c->chat), (long long)c->serve->max_tok);
    while ((rc = read_message(&line)) == OK) {
        if (line.n == 0)
            continue;
        rc = line.p[0] == '/' ? command(c, line.p) : answer(c, line.p, line.n);
        if (rc == ERR_ARG || rc == ERR_LIMIT || rc == ERR_UNSUPPORTED)
            fprintf(stderr, "sandwich chat: %s\n", err_msg());
        else if (rc != OK)
            break;
        if (cli_interrupted && cli_interrupted != SIGINT)
            break;
        if (cli_interrupted)
            fputs("(interrupted)\n", stderr);
        cli_interrupted = 0;
    }
    text_fini(&line);
    return rc == ERR_CANCELED ? OK : rc;
}

static bool is_piped(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* The message of --prompt and what is piped in. */
static int answer_once(struct conversation *c)
{
    const bool read_input = c->f->prompt ? is_piped() : true;
    struct text message = {0};
    char block[4096];
    size_t n;
    int rc;

    if (c->f->prompt)
        text_puts(&message, c->f->prompt);
    while (read_input && (n = fread(block, 1, sizeof(block), stdin)) > 0) {
        if (c->f->prompt && message.n == strlen(c->f->prompt))
            text_puts(&message, "\n\n");
        text_put(&message, block, n);
    }
    while (message.n > 0 && message.p[message.n - 1] == '\n')
        message.n--;
    if (message.rc == OK && message.n == 0)
        rc = err_set(ERR_ARG, "the input is empty: expected a message");
    else
        rc = message.rc == OK ? answer(c, message.p, message.n) : message.rc;
    text_fini(&message);
    return rc;
}

/* ---- all of it ---- */

static int open_all(struct conversation *c)
{
    const struct chat_flags *f = c->f;
    static char doing[] = "loading";

    TRY(serve_open_with(&c->serve, &f->serve,
                        &(struct serve_how){.progress = cli_progress, .ctx = doing}));
    if (!c->serve->tok)
        return err_set(ERR_ARG, "%s has no tokenizer: give one with --tokenizer",
                       f->serve.model);
    if (chat_open(&c->chat, &(struct chat_opts){.model = f->serve.model,
                                                .tokenizer = f->serve.tokenizer,
                                                .template = f->chat_template,
                                                .tok = c->serve->tok}) != OK)
        return f->chat_template
                   ? ERR_ARG
                   : err_set(ERR_ARG,
                             "%s: no chat template of its own can be used (%s); give one "
                             "with --chat-template FILE, or one of " CHAT_KNOWN_NAMES,
                             f->serve.model, err_msg());
    c->capacity = 8 + 3 * tok_longest(c->serve->tok);
    c->piece = mem_new(MEM_OTHER, c->capacity, 1);
    c->messages = json_array();
    if (!c->piece || !c->messages)
        return err_set(ERR_NOMEM, "no memory for the conversation");
    return set_system(c, f->system ? f->system : "");
}

static int run(const struct verb_words *w)
{
    const struct chat_flags *f = w->opts;
    struct conversation c = {.f = f};
    int rc;

    if (!f->serve.model)
        return err_set(ERR_ARG, "a model is needed: `sandwich chat FILE`");
    cli_ngl_warn(f->n_gpu_layers);
    rc = cli_read_grammar(f->grammar, f->json_schema, &c.grammar);
    c.grammar.at_start = true;
    if (rc == OK)
        rc = open_all(&c);
    if (rc == OK)
        rc = f->prompt || !isatty(STDIN_FILENO) ? answer_once(&c) : talk(&c);
    text_fini(&c.answer);
    json_decref(c.messages);
    mem_free(c.piece);
    mem_free((char *)c.grammar.text);
    chat_close(&c.chat);
    serve_close(&c.serve);
    return rc == OK && cli_interrupted ? CLI_INTERRUPTED : rc;
}

/* A turn of a conversation begins as the one before it. */
static const struct opt_change changes[] = {{.name = "kv_reuse", .def = "true"}, {0}};

const struct verb cli_verb_chat = {
    .name = "chat",
    .help = "Talk with a model, or pipe a message to it.",
    .place = 2,
    .usage =
        {.line = "sandwich chat MODEL [PROMPT] [options]",
         .about =
             "Talk with a model, whose chat template writes the conversation. Answers "
             "are printed as they are generated. Ctrl-C ends the answer, not the "
             "chat; /reset begins a new conversation, /system TEXT sets the system "
             "message, /help lists what else there is. A message in PROMPT or piped "
             "in is answered once; only the answer is on standard output.",
         .examples =
             "  sandwich chat llama-160m.gguf --chat-template llama-2\n"
             "  sandwich chat qwen2.gguf \"What is a cache line?\" --max-tokens 200\n"
             "  sandwich chat qwen2.gguf \"Summarise:\" <notes.txt\n"},

    .fills = {"model", "prompt"},
    .opts = {{serve_opt_table, 0, changes}, {own_rows}},
    .opts_bytes = sizeof(struct chat_flags),
    .run = run,
};
