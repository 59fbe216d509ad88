/* tests/fuzz/targets.h - one function a parser: bytes in, nothing out but a sound model
 * or one error. The libFuzzer harness (fuzz.c) and the replay of the corpus share them. */
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "chat/template.h"
#include "format/format.h"
#include "format/hf_config.h"
#include "format/safet.h"
#include "grammar/rules.h"
#include "graph/decoder.h"
#include "graph/onnx.h"
#include "ir/ir.h"
#include "http/request.h"
#include "tokenizer/tokenizer.h"
#include "plan/plan.h"
#include "simulate/contention.h"
#include "measure/card.h"
#include "topo/topotree.h"
#include "tune/schedule_cache.h"
#include "experiments/record/export.h"
#include "experiments/record/journal.h"

/* The bytes as a file without a name on disk; path is /proc/self/fd/N. Returns the fd. */
static inline int fuzz_file(const uint8_t *data, size_t n, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* A refusal is one line that names the file. */
static inline void fuzz_check_refusal(const char *path)
{
    if (!strstr(err_msg(), path) || strchr(err_msg(), '\n'))
        abort();
}

static volatile unsigned fuzz_sink; /* so that reading a tensor is not optimised away */

static inline void fuzz_touch(const struct format_tensor *t)
{
    const uint8_t *p = t->data;

    if (p)
        fuzz_sink += p[0] + p[(size_t)t->rows * kern_type_size(t->type, t->cols) - 1];
}

/* Open by the reader of this name, whatever the bytes look like. */
static inline int fuzz_reader(const char *name, const uint8_t *data, size_t n)
{
    struct format_file f = {.config = {.bos_id = -1, .eos_id = -1}};
    char path[64];
    int i, role, fd = fuzz_file(data, n, path);

    for (i = 0; strcmp(format_readers[i]->name, name) != 0; i++)
        ;
    snprintf(f.path, sizeof(f.path), "%s", path);
    snprintf(f.format, sizeof(f.format), "%s", name);
    if (format_readers[i]->open(&f, path) != OK) {
        fuzz_check_refusal(path);
    } else {
        if (model_config_check(&f.config, path) != OK || format_check_tensors(&f) != OK)
            abort();
        for (role = 0; role < FORMAT_N_ROLES; role++)
            fuzz_touch(role < FORMAT_ATTN_NORM
                           ? &f.global[role]
                           : format_layer_tensor(&f, f.config.n_layers - 1, role));
    }
    format_readers[i]->close(&f);
    mem_free(f.layer);
    close(fd);
    return 0;
}

static inline int fuzz_gguf(const uint8_t *data, size_t n)
{
    return fuzz_reader("gguf", data, n);
}

static inline int fuzz_llama2c(const uint8_t *data, size_t n)
{
    return fuzz_reader("llama2c", data, n);
}

static inline int fuzz_safetensors(const uint8_t *data, size_t n)
{
    const struct format_safet_tensor *t;
    struct format_safet *s;
    char path[64];
    uint64_t i;
    int fd = fuzz_file(data, n, path);

    if (format_safet_open(&s, path) != OK)
        fuzz_check_refusal(path);
    for (i = 0; s && i < format_safet_n(s); i++) {
        t = format_safet_at(s, i);
        if (t->end > t->begin)
            fuzz_sink += ((const uint8_t *)t->data)[t->end - t->begin - 1];
        if (format_safet_find(s, t->name) != t)
            abort();
    }
    format_safet_close(&s);
    close(fd);
    return 0;
}

static inline int fuzz_config(const uint8_t *data, size_t n)
{
    struct model_config c = {.bos_id = -1, .eos_id = -1};
    char path[64];
    int fd = fuzz_file(data, n, path);

    if (lseek(fd, 0, SEEK_SET) != 0)
        abort();
    if (format_hf_config(&c, path) != OK)
        fuzz_check_refusal(path);
    else if (model_config_check(&c, path) != OK)
        abort();
    close(fd);
    return 0;
}

/* What is read prices a stream of three cores in finite time. */
static inline int fuzz_machine_params(const uint8_t *data, size_t n)
{
    static struct topo_machine *m; /* one for all inputs, as a program has it */
    static const int pus[] = {0, 3, 9};
    struct simulate_machine *s;
    char path[64];
    double gbps;
    int fd = fuzz_file(data, n, path);

    if (!m && topo_machine_open(&m, "synthetic:node:2 core:8 pu:1") != OK)
        abort();
    if (lseek(fd, 0, SEEK_SET) != 0)
        abort();
    if (simulate_machine_open(&s, m, path) != OK)
        fuzz_check_refusal(path);
    else if (simulate_stream_gbps(s, pus, 3, &gbps) != OK || !(gbps > 0 && gbps < 1e12))
        abort();
    simulate_machine_close(&s);
    close(fd);
    return 0;
}

/* What is read can be printed, rendered, and written to be read as the same. */
static inline int fuzz_plan(const uint8_t *data, size_t n)
{
    static struct plan p, again;
    char path[64], copy[64];
    int fd = fuzz_file(data, n, path);
    char *text[4] = {0};

    if (plan_read(&p, path) != OK) {
        plan_fini(&p);
        fuzz_check_refusal(path);
        close(fd);
        return 0;
    }
    snprintf(copy, sizeof(copy), P_tmpdir "/fuzz_plan.%d", (int)getpid());
    if (p.n_cpus < 1 || p.n_cpus > CPU_MAX || plan_write(&p, copy) != OK ||
        plan_read(&again, copy) != OK)
        abort();
    snprintf(again.source, sizeof(again.source), "%s", p.source);
    if (plan_text(&p, &text[0]) != OK || plan_text(&again, &text[1]) != OK ||
        plan_render(&p, &text[2]) != OK || plan_render(&again, &text[3]) != OK ||
        strcmp(text[0], text[1]) != 0 || strcmp(text[2], text[3]) != 0)
        abort();
    for (int i = 0; i < 4; i++)
        mem_free(text[i]);
    plan_fini(&p);
    plan_fini(&again);
    unlink(copy);
    close(fd);
    return 0;
}

/* The machine card of this host has values of this host: most inputs are refused. */
static inline int fuzz_card(const uint8_t *data, size_t n)
{
    char path[64], *text;
    json_t *card;
    double gbps;
    int fd = fuzz_file(data, n, path);

    if (measure_card_read(&card, path) != OK) {
        fuzz_check_refusal(path);
    } else {
        gbps = measure_card_read_gbps(card, 2);
        fuzz_sink += gbps > 0 && measure_card_peak_gflops(card, "bf16", "relaxed", 2) > 0;
        if (measure_card_text(card, &text) != OK)
            abort();
        mem_free(text);
    }
    json_decref(card);
    close(fd);
    return 0;
}

/* The file must be called .xml. What is read has sound indices, and a tree is made of it. */
static inline int fuzz_topology(const uint8_t *data, size_t n)
{
    struct topo_machine *m;
    struct topo_tree *t = NULL;
    char path[64], file[64];
    int fd = fuzz_file(data, n, path);

    snprintf(file, sizeof(file), P_tmpdir "/fuzz_topology.%d.xml", (int)getpid());
    unlink(file);
    if (symlink(path, file) != 0)
        abort();
    if (topo_machine_open(&m, file) != OK) {
        fuzz_check_refusal(file);
    } else {
        for (int i = 0; i < m->n_pus; i++)
            if (m->pus[i].core >= m->n_cores || m->pus[i].node >= m->n_nodes ||
                (i > 0 && m->pus[i].os_index <= m->pus[i - 1].os_index))
                abort();
        if (topo_tree_open(&t, m, NULL, NULL, 0) == ERR_FORMAT)
            abort();
    }
    mem_free(t);
    topo_machine_close(&m);
    unlink(file);
    close(fd);
    return 0;
}

static inline int fuzz_cache(const uint8_t *data, size_t n)
{
    static const int cpus[] = {0, 1};
    struct tune_cache *c;
    char path[64];
    int fd = fuzz_file(data, n, path);

    if (tune_cache_open(&c, path, cpus, 2) != OK)
        fuzz_check_refusal(path);
    tune_cache_close(&c);
    close(fd);
    return 0;
}

static inline int fuzz_journal_cell(void *ctx, const struct record_cell *c)
{
    (void)ctx;
    for (size_t i = 0; i < c->n_rows; i++)
        for (int64_t k = 0; k < c->rows[i].n_tok; k++)
            fuzz_sink += (unsigned)c->rows[i].token_ns[k];
    return OK;
}

static inline int fuzz_journal(const uint8_t *data, size_t n)
{
    char path[64];
    json_t *header = NULL;
    size_t n_interrupted;
    int fd = fuzz_file(data, n, path);

    if (journal_read(path, fuzz_journal_cell, NULL, &header, &n_interrupted) != OK)
        fuzz_check_refusal(path);
    json_decref(header);
    close(fd);
    return 0;
}

static inline int fuzz_record(const uint8_t *data, size_t n)
{
    char path[64];
    FILE *null = fopen("/dev/null", "w");
    int fd = fuzz_file(data, n, path);

    for (int form = EXPORT_CSV_REQUESTS; null && form <= EXPORT_MARKDOWN; form++)
        if (export_print(path, (enum export_format)form, null) != OK)
            fuzz_check_refusal(path);
    fclose(null);
    close(fd);
    return 0;
}

/* Every byte of the text comes back, whatever the vocabulary, unless a rule says otherwise:
 * control tokens are not shown, an unknown token may stand for bytes, an expression of the
 * file's own may give up. What is left to check is that ids and lengths are sound. */
static inline void fuzz_tok_use(const struct tok *t, const char *text, size_t n)
{
    struct tok_stream s;
    int32_t *ids;
    size_t n_ids, n_out, room = 8 + 3 * tok_longest(t);
    char *out;

    if (tok_encode(t, text, n, TOK_BOS | TOK_SPECIAL, &ids, &n_ids) != OK)
        return;
    out = mem_new(MEM_TEST, room, 1);
    if (!out)
        abort();
    tok_stream_init(&s, t);
    for (size_t i = 0; i < n_ids; i++)
        if (tok_stream_put(&s, ids[i], out, room, &n_out) != OK || n_out > room)
            abort();
    (void)tok_stream_flush(&s, out, room);
    mem_free(out);
    mem_free(ids);
}

static inline int fuzz_tok(const uint8_t *data, size_t n)
{
    static const char text[] =
        " the in\n\n12 aaaa\xC3\xA9 e\xCC\x81 \xFF<s><ud>'s \xE4\xB8";
    struct tok_opts ranks = {.pre = "llama-3"};
    struct tok *t;
    char path[64];
    int fd = fuzz_file(data, n, path);
    int rc = tok_open(&t, path, NULL);

    if (rc == ERR_ARG) /* a rank file says nothing of its pre-tokenizer */
        rc = tok_open(&t, path, &ranks);
    if (rc != OK) {
        fuzz_check_refusal(path);
    } else {
        fuzz_tok_use(t, text, sizeof(text) - 1);
        fuzz_tok_use(t, (const char *)data, n < 300 ? n : 300);
    }
    tok_close(&t);
    close(fd);
    return 0;
}

/* A template, rendered with a conversation. The input is the template's text or, where it begins
 * with '[', messages that each of some templates writes. */
static const char *const fuzz_chat_templates[] = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% if m.tool_calls %}"
    "{{ m.tool_calls | tojson(indent=2) }}{% endif %}{% endfor %}",
    "{{ messages }}{{ messages | map(attribute='content') | list }}",
    "{% set ns = namespace(s='') %}{% for m in messages[::-1] if m.role == 'user' %}"
    "{% set ns.s = ns.s ~ m.content.split('x')[-1].lstrip('\\n') | title %}{{ loop.last "
    "}}"
    "{% endfor %}{{ ns.s.upper() }}{{ ns.s | indent }}{{ ns.s[1:-1] }}",
};

static inline void fuzz_chat_render(const struct chat_template *t, json_t *messages)
{
    struct chat_variable v[] = {
        {.name = "messages", .value = messages},
        {.name = "tools", .value = messages},
        {.name = "bos_token",
         .value = json_object_get(json_array_get(messages, 0), "role"),
         .trusted = true},
    };
    struct chat_input in = {.variables = v, .n_variables = 3, .max_bytes = 1 << 16};
    struct chat_prompt p = {0};
    size_t n = 0;

    err_clear();
    if (chat_template_render(t, &in, &p) != OK) {
        if (!err_msg()[0] || strchr(err_msg(), '\n'))
            abort();
    } else {
        for (size_t i = 0; i < p.n_parts; i++)
            n += p.parts[i].n;
        if (n != p.text.n || (n > 0 && !utf8_valid(p.text.p, n)))
            abort();
    }
    chat_prompt_fini(&p);
}

static inline int fuzz_chat(const uint8_t *data, size_t n)
{
    static const char talk[] =
        "[{\"role\": \"user\", \"content\": \" Hi <|x|>\\n\\u00e9\"}, {\"role\": "
        "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
        "\"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}]";
    bool is_messages = n > 0 && data[0] == '[';
    json_t *messages = is_messages ? json_loadb((const char *)data, n, 0, NULL)
                                   : json_loads(talk, 0, NULL);
    struct chat_template *t;

    for (int i = 0; messages && i < (is_messages ? 3 : 1); i++) {
        const char *text = is_messages ? fuzz_chat_templates[i] : (const char *)data;

        if (chat_template_open(&t, text, is_messages ? strlen(text) : n, "template") !=
            OK) {
            fuzz_check_refusal("template");
            continue;
        }
        fuzz_chat_render(t, messages);
        chat_template_close(&t);
    }
    json_decref(messages);
    return 0;
}

/* The body of a request, as a chat and as a completion. */
static inline int fuzz_request(const uint8_t *data, size_t n)
{
    for (int api = HTTP_COMPLETION; api <= HTTP_CHAT; api++) {
        struct http_request r;

        err_clear();
        if (http_request_parse(&r, (enum http_api)api, (const char *)data, n) != OK &&
            !err_msg()[0])
            abort();
        http_request_fini(&r);
    }
    return 0;
}

/* Rules that are read have states that are there. */
static inline int fuzz_gbnf(const uint8_t *data, size_t n)
{
    struct grammar_rules r = {0};

    err_clear();
    if (grammar_rules_read(&r, (const char *)data, n) != OK) {
        if (!err_msg()[0] || strchr(err_msg(), '\n'))
            abort();
    } else {
        for (int i = 0; i < r.n_rules; i++)
            if (r.entry[i] < 0 || r.entry[i] >= r.n_states)
                abort();
    }
    grammar_rules_fini(&r);
    return 0;
}

/* A schema that is read becomes rules that are read, unless they are too many or never end. */
static inline int fuzz_schema(const uint8_t *data, size_t n)
{
    struct grammar_rules r = {0};
    char *rules = NULL;
    int rc;

    err_clear();
    if (grammar_from_schema(&rules, (const char *)data, n, "r0") != OK) {
        if (!err_msg()[0] || strchr(err_msg(), '\n'))
            abort();
        return 0;
    }
    rc = grammar_rules_read(&r, rules, strlen(rules));
    if (rc != OK && rc != ERR_LIMIT && !strstr(err_msg(), "rule \"r"))
        abort();
    grammar_rules_fini(&r);
    mem_free(rules);
    return 0;
}

/* A graph that is read is rewritten, and its text is that of an equal graph. */
static inline int fuzz_graph(const uint8_t *data, size_t n)
{
    struct graph g, again;
    char *text = NULL, *same = NULL;

    if (graph_parse(&g, (const char *)data, n) != OK) {
        if (!err_msg()[0] || strchr(err_msg(), '\n'))
            abort();
        return 0;
    }
    if (graph_rewrite(&g, NULL) == OK && graph_print(&text, &g) == OK) {
        if (graph_parse(&again, text, strlen(text)) != OK ||
            graph_print(&same, &again) != OK || strcmp(text, same) != 0)
            abort();
        graph_fini(&again);
    }
    mem_free(text);
    mem_free(same);
    graph_fini(&g);
    return 0;
}

/* An ONNX file that is read is rewritten, and is a decoder or not. */
static inline int fuzz_onnx(const uint8_t *data, size_t n)
{
    struct graph_onnx *f;
    struct graph_decoder d;
    char *text = NULL;

    if (graph_onnx_open(&f, data, n) != OK) {
        if (!err_msg()[0] || strchr(err_msg(), '\n'))
            abort();
        return 0;
    }
    if (graph_rewrite(graph_onnx_graph(f), NULL) == OK) {
        if (graph_print(&text, graph_onnx_graph(f)) == OK)
            mem_free(text);
        if (graph_decoder_of(&d, graph_onnx_graph(f), graph_onnx_fill, f) == OK)
            graph_decoder_fini(&d);
    }
    graph_onnx_close(&f);
    return 0;
}

/* A kernel that is read is printed as the same one; raised, changed and lowered without harm. */
static inline int fuzz_ir_level(enum ir_level level, const uint8_t *data, size_t n)
{
    struct ir p, again, high = {0};
    char *text = NULL, *same = NULL, *lowered = NULL;

    if (ir_parse(&p, level, (const char *)data, n, "kernel") != OK) {
        fuzz_check_refusal("kernel");
        return 0;
    }
    if (ir_print(&text, &p) != OK ||
        ir_parse(&again, level, text, strlen(text), "again") != OK ||
        ir_print(&same, &again) != OK || strcmp(text, same) != 0)
        abort();
    mem_free(same);
    if (level == IR_LOW ? ir_raise(&high, &p) == OK
                        : ir_parse(&high, level, text, strlen(text), "high") == OK) {
        static const char *const names[] = {"uM", "uN", "vN", "vI", "uI", "uK", "vD"};

        for (int i = 0; i < 7; i++)
            if (ir_set(&high, names[i], 1 << (i + 1) % 4) != OK)
                err_clear();
        if (ir_lower(&lowered, &high, 16) != OK && !err_msg()[0])
            abort();
    }
    mem_free(lowered);
    mem_free(text);
    ir_fini(&high);
    ir_fini(&again);
    ir_fini(&p);
    return 0;
}

static inline int fuzz_ir_low(const uint8_t *data, size_t n)
{
    return fuzz_ir_level(IR_LOW, data, n);
}

static inline int fuzz_ir_high(const uint8_t *data, size_t n)
{
    return fuzz_ir_level(IR_HIGH, data, n);
}

static const struct {
    const char *name; /* of its folder in tests/fuzz/corpus */
    int (*run)(const uint8_t *data, size_t n);
} fuzz_targets[] = {
    {"cache", fuzz_cache},
    {"card", fuzz_card},
    {"chat", fuzz_chat},
    {"config", fuzz_config},
    {"gbnf", fuzz_gbnf},
    {"gguf", fuzz_gguf},
    {"graph", fuzz_graph},
    {"ir_high", fuzz_ir_high},
    {"ir_low", fuzz_ir_low},
    {"journal", fuzz_journal},
    {"llama2c", fuzz_llama2c},
    {"machine_params", fuzz_machine_params},
    {"onnx", fuzz_onnx},
    {"plan", fuzz_plan},
    {"record", fuzz_record},
    {"request", fuzz_request},
    {"safetensors", fuzz_safetensors},
    {"schema", fuzz_schema},
    {"tok", fuzz_tok},
    {"topology", fuzz_topology},
};
#define FUZZ_N_TARGETS ((int)(sizeof(fuzz_targets) / sizeof(fuzz_targets[0])))

#endif
