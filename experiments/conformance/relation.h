/* experiments/conformance/relation.h - a relation that answers must satisfy: one file in
 * relation/ that ends in one `const struct conform_relation conform_<stem>`. make lists the
 * folder. A relation sends requests and says which answers must be equal; the rest (deadlines,
 * noise, what each answer says of itself, the report) is done for it.
 * Threads: one. */
#ifndef CONFORM_RELATION_H
#define CONFORM_RELATION_H

#include "experiments/conformance/client.h"
#include "experiments/conformance/conform.h"

struct conform_run;

struct conform_relation {
    const char *name, *about; /* "what must give the same", for the report */
    /* Why it does not apply to this server; NULL: it does. The member may be NULL. */
    const char *(*unavailable)(const struct conform_run *r);
    /* One case or a few. Anything but OK ends the whole run: answers that are wrong, late or
     * missing are no errors here. */
    int (*round)(struct conform_run *r);
};
extern const struct conform_relation *const conform_relations[]; /* written by make */

const struct conform_opts *conform_opts_of(const struct conform_run *r);
const struct sut_openai_probe *conform_probe_of(const struct conform_run *r);
bool conform_has_reference(const struct conform_run *r);
/* Does the server send the ids of the tokens that it answers with? */
bool conform_has_ids(const struct conform_run *r);
/* Length of long prompts: as asked for, and no more than the server can hold. */
int64_t conform_long_tok(const struct conform_run *r);

/* The run owns all of these until the round ends. */

/* A prompt that no request had before, but for its first n_shared tokens, which are those of
 * `like`. *out: [n_tok]. ERR_NOMEM. */
MUST int conform_prompt(struct conform_run *r, int32_t **out, int64_t n_tok,
                        const int32_t *like, int64_t n_shared);
/* n tokens of memory for prompts. ERR_NOMEM. */
MUST int conform_tokens(struct conform_run *r, int32_t **out, int64_t n);
/* A request that is not streamed, for as many tokens as the options state. In every other
 * round it is sampled, where the server takes seeds. */
struct conform_request conform_request(const struct conform_run *r, const int32_t *prompt,
                                       int64_t n_prompt);
/* Send n requests at once and wait. *a: [n]; what is wrong with one of them alone is noted. */
MUST int conform_ask(struct conform_run *r, struct conform_answer **a,
                     const struct conform_request *q, int n);
/* The same to the reference server. */
MUST int conform_ask_reference(struct conform_run *r, struct conform_answer **a,
                               const struct conform_request *q, int n);

struct conform_comparison {
    const struct conform_request *q;   /* what `want` answers */
    const struct conform_answer *want; /* of the request when nothing else happens */
    const struct conform_answer *got;
    const char
        *when; /* what was different for `got`: "its prompt had been computed before" */
    int64_t skip; /* `got` begins after this many tokens of `want` */
    bool shorter; /* `got` is shorter than `want`, and must be its beginning */
};
/* One case: the answers must agree. One that failed, or did not come, is no case. */
MUST int conform_compare(struct conform_run *r, const struct conform_comparison *c);

/* More for people, about this relation, in its line of the report. */
void conform_note(struct conform_run *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The number of preemptions in the server's /metrics so far; -1: it counts none. */
double conform_preemptions(struct conform_run *r);

#endif
