/* tests/fuzz/targets.h - one function a parser: bytes in, nothing out but a sound model
 * or one error. The libFuzzer harnesses (fuzz_*.c) and the replay of the corpus share
 * them. */
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "format/format.h"
#include "format/hf_config.h"
#include "format/safet.h"
#include "tokenizer/tokenizer.h"
#include "plan/plan.h"
#include "simulate/contention.h"

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
        fuzz_sink += p[0] + p[(size_t)(t->rows * t->cols) * kern_type_bytes(t->type) - 1];
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
    unlink(copy);
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

#endif
