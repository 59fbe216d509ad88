#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "experiments/conformance/impl.h"

#define FLOOR_ROUNDS 12
#define HANGS_MAX    3 /* then the server is left alone */
#define PROBE_FRAC   0.25
#define DIFFER       "a request was sent again"

static int n_relations(void)
{
    int n = 0;

    while (conform_relations[n])
        n++;
    return n;
}

static bool is_over(const struct conform_run *r)
{
    return r->time_over || r->n_hangs >= HANGS_MAX || clock_ns() >= r->end_ns;
}

/* --- findings */

static bool alike(const struct conform_finding *a, const struct conform_finding *b)
{
    return a->kind == b->kind && a->kind != CONFORM_WRONG && a->streamed == b->streamed &&
           strncmp(a->what, b->what, strcspn(a->what, ":")) == 0 &&
           strcspn(a->what, ":") == strcspn(b->what, ":");
}

void conform_add_finding(struct conform_run *r, const struct conform_finding *f)
{
    struct conform_finding *to;

    for (int i = 0; i < r->n_findings; i++)
        if (alike(&r->findings[i], f)) {
            r->findings[i].n++;
            return;
        }
    if (r->n_findings == CONFORM_FINDINGS_MAX) {
        r->n_more++;
        return;
    }
    to = &r->findings[r->n_findings++];
    *to = *f;
    to->relation = r->now ? r->now->name : "repeats";
    to->round = r->round;
    to->n = 1;
}

/* --- the noise floor */

/* The first answer may come from a prompt that no cache has; the floor is of equal states. */
static int repeat(struct conform_run *r)
{
    const int64_t n = r->o->prompt_tok;
    struct conform_finding f = {.kind = CONFORM_WRONG};
    struct conform_answer *a[3];
    struct conform_request q;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = conform_request(r, prompt, n);
    for (int i = 0; i < 3; i++)
        TRY(conform_ask(r, &a[i], &q, 1));
    if (!conform_answer_whole(a[1]) || !conform_answer_whole(a[2]))
        return OK;
    f.mode = conform_mode_of(&q);
    r->floor[f.mode].n++;
    if (!conform_differ(&f,
                        &(struct conform_comparison){.q = &q, .want = a[1], .got = a[2]}))
        return OK;
    r->floor[f.mode].n_differ++;
    snprintf(f.what, sizeof(f.what), DIFFER);
    conform_add_finding(r, &f);
    return OK;
}

static int measure_floor(struct conform_run *r)
{
    int rc = OK;

    r->now = NULL;
    r->out = &r->floor_outcome;
    for (r->round = 0; rc == OK && r->round < FLOOR_ROUNDS && !is_over(r); r->round++) {
        rc = repeat(r);
        conform_round_end(r);
    }
    return rc;
}

/* --- the relations, in turn, so that each has cases when the time is over */

static void find_unavailable(struct conform_run *r)
{
    for (int i = 0; conform_relations[i]; i++)
        if (conform_relations[i]->unavailable)
            r->outcomes[i].unavailable = conform_relations[i]->unavailable(r);
}

static int one_round(struct conform_run *r)
{
    int rc = OK;

    for (int i = 0; rc == OK && conform_relations[i] && !is_over(r); i++) {
        r->now = conform_relations[i];
        r->out = &r->outcomes[i];
        if (!r->out->unavailable)
            rc = r->now->round(r);
        conform_round_end(r);
    }
    return rc;
}

static int all_rounds(struct conform_run *r)
{
    int rc = measure_floor(r);

    find_unavailable(r);
    for (r->round = 0; rc == OK && r->round < r->o->rounds && !is_over(r); r->round++)
        rc = one_round(r);
    return rc;
}

/* --- the servers */

struct servers {
    struct conform_serve *checked, *reference; /* started here, or NULL */
};

static int start_both(struct servers *s, char *url, char *reference_url,
                      const struct conform_opts *o)
{
    if (!o->model)
        return err_set(ERR_ARG, "--roles: expected --model FILE together with it");
    if (o->reference)
        return err_set(ERR_ARG, "--roles: its reference is one process; remove "
                                "--reference");
    TRY(conform_serve_start(&s->reference, reference_url, o->model, NULL, o->serve_words,
                            NULL));
    return conform_serve_start(&s->checked, url, o->model, o->roles, o->serve_words,
                               o->roles_words);
}

static int open_clients(struct conform_run *r, const char *url, const char *reference)
{
    const char *key = r->o->api_key_env ? getenv(r->o->api_key_env) : NULL;
    const char *model = r->o->roles ? NULL : r->o->model;
    const double limit_s = PROBE_FRAC * r->o->budget;

    TRY(conform_client_open(&r->server, url, model, key, r->o->ids, limit_s));
    if (!reference)
        return OK;
    TRY(conform_client_open(&r->reference, reference, NULL, key, r->o->ids, limit_s));
    if (conform_client_probe(r->reference)->as_text !=
        conform_client_probe(r->server)->as_text)
        return err_set(ERR_UNSUPPORTED,
                       "one of the servers takes prompts of token ids, "
                       "and the other does not: they cannot be compared");
    return OK;
}

static int check(struct conform_run *r, struct conform_result *result, const char *url,
                 const char *reference, FILE *out)
{
    r->outcomes = mem_new(MEM_HARNESS, (size_t)n_relations(), sizeof(*r->outcomes));
    r->findings = mem_new(MEM_HARNESS, CONFORM_FINDINGS_MAX, sizeof(*r->findings));
    if (!r->outcomes || !r->findings)
        return ERR_NOMEM;
    r->begun_ns = clock_ns();
    r->end_ns = r->begun_ns + (uint64_t)(r->o->budget * 1e9);
    TRY(open_clients(r, url, reference));
    TRY(all_rounds(r));
    conform_judge(r, result);
    conform_print(r, result, out);
    return r->o->json ? conform_write_json(r, result, r->o->json) : OK;
}

int conform_run(struct conform_result *result, const char *url,
                const struct conform_opts *o, FILE *out)
{
    struct conform_run r = {.o = o};
    struct servers s = {0};
    char own[64], own_reference[64];
    const char *reference = o->reference;
    int rc = OK;

    *result = (struct conform_result){0};
    if (!url == !o->roles)
        return err_set(ERR_ARG, "expected a URL or --roles SPEC, one of the two");
    if (o->json)
        rc = file_check_target(o->json, NULL);
    rng_init(&r.rng, (uint64_t)o->seed, "conformance");
    if (rc == OK && o->roles) {
        rc = start_both(&s, own, own_reference, o);
        url = own;
        reference = own_reference;
    }
    if (rc == OK)
        rc = check(&r, result, url, reference, out);
    conform_round_end(&r);
    conform_client_close(&r.server);
    conform_client_close(&r.reference);
    conform_serve_stop(&s.checked);
    conform_serve_stop(&s.reference);
    mem_free(r.outcomes);
    mem_free(r.findings);
    return rc;
}
