/* baselines/openai_probe.h - what a server is and what it accepts, found out by asking it.
 * Threads: none of its own. */
#ifndef BASELINES_OPENAI_PROBE_H
#define BASELINES_OPENAI_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "baselines/http.h"

enum sut_openai_prompt {
    SUT_OPENAI_AUTO,
    SUT_OPENAI_PROMPT_IDS,
    SUT_OPENAI_PROMPT_WORDS
};

struct sut_openai_probe_opts {
    const char *model; /* NULL: the first that the server lists */
    enum sut_openai_prompt prompt;
    int64_t vocab, max_tok; /* 0: as the server states */
    double limit_s;         /* of all questions together; 0: none */
};

struct sut_openai_probe {
    char *url;                              /* of the interface, "http://.../v1"; owned */
    char *api_key;                          /* or NULL; owned */
    char model[256], kind[64], version[64]; /* "": not stated */
    int64_t vocab, max_tok;
    bool vocab_assumed, max_tok_assumed;
    bool as_text, as_chat;  /* as_chat: the server has only chats */
    char why_text[200];     /* why prompts are words */
    int64_t n_text_extra;   /* tokens of a prompt of words beyond its words */
    int64_t n_prompt_extra; /* tokens that the server adds to a prompt of ids */
    unsigned extras;        /* that it does not refuse (openai.h) */
};

/* "http://host:port" with "/v1", or the path that it has, without a slash at the end.
 * ERR_ARG: not an http or https URL. */
MUST int sut_openai_url(char *out, size_t n, const char *url);

/* `http` names the interface. *out: sut_openai_probe_fini(), also after an error. ERR_IO: no
 * answer, or none of a compatible server, in one line that names the URL. ERR_UNSUPPORTED: it
 * does not accept prompts as asked for. */
MUST int sut_openai_probe(struct sut_openai_probe *out, const struct sut_http_opts *http,
                          const struct sut_openai_probe_opts *o);
void sut_openai_probe_fini(struct sut_openai_probe *p);

/* How many words stand for a prompt of n_tok tokens, at least one. */
int64_t sut_openai_n_words(const struct sut_openai_probe *p, int64_t n_tok);
/* Ids of a text by the server's own tokenizer. ERR_UNSUPPORTED: it does not offer it. *ids:
 * mem_free(). */
MUST int sut_openai_encode(const struct sut_openai_probe *p, const char *text, size_t n,
                           int32_t **ids, size_t *n_ids);
/* For the record; a new reference. */
json_t *sut_openai_probe_json(const struct sut_openai_probe *p);

#endif
