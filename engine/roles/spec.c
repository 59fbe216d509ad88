#include "roles/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"

/* Options that are the same on all machines, since they send each other ids, keys and values. */
static const char *const common[] = {"model", "tokenizer", "pre_tokenizer", "kv_type",
                                     NULL};

static int set_option(struct roles_spec *s, int kind, char *word)
{
    char *value = strchr(word, '='), where[96];

    snprintf(where, sizeof(where), "roles: %s: %.40s", cluster_pool_names[kind], word);
    if (!value)
        return err_set(ERR_ARG,
                       "roles: %s: expected OPTION=VALUE behind a colon, found \"%.60s\"",
                       cluster_pool_names[kind], word);
    *value++ = '\0';
    if (name_index(common, word) >= 0)
        return err_set(ERR_ARG, "roles: %s: %s is that of all machines: set it for all",
                       cluster_pool_names[kind], word);
    return opt_set(serve_opt_table, &s->engine[kind], word, value, where);
}

/* KIND=N:OPTION=VALUE:... */
static int parse_kind(struct roles_spec *s, char *item)
{
    char *save = NULL, *word = strtok_r(item, ":", &save), *value, *end;
    int kind;
    long n;

    value = word ? strchr(word, '=') : NULL;
    if (!value)
        return err_set(ERR_ARG, "roles: expected KIND=N, found \"%.60s\"",
                       word ? word : "");
    *value++ = '\0';
    kind = name_index(cluster_pool_names, word);
    if (kind < 0)
        return name_unknown(ERR_ARG, word, cluster_pool_names,
                            "roles: expected prompt, token or mixed, found \"%.60s\"",
                            word);
    n = strtol(value, &end, 10);
    if (end == value || *end || n < 1 || n > ROLES_MACHINES_MAX)
        return err_set(ERR_ARG,
                       "roles: %s: expected a number from 1 to %d, found \"%.60s\"", word,
                       ROLES_MACHINES_MAX, value);
    if (s->n[kind] > 0)
        return err_set(ERR_ARG, "roles: %s: given twice", word);
    s->n[kind] = (int)n;
    while ((word = strtok_r(NULL, ":", &save)) != NULL)
        TRY(set_option(s, kind, word));
    return OK;
}

static int check(const struct roles_spec *s)
{
    bool split = s->n[CLUSTER_PROMPT] > 0 && s->n[CLUSTER_TOKEN] > 0;

    if (split || s->n[CLUSTER_MIXED] > 0)
        return OK;
    return err_set(
        ERR_ARG,
        "roles: %d prompt machines, %d token machines and no mixed one: expected "
        "prompt=N,token=N, or mixed=N",
        s->n[CLUSTER_PROMPT], s->n[CLUSTER_TOKEN]);
}

static int parse_items(struct roles_spec *s, const char *text)
{
    /* Empty items are wrong, but strtok_r() passes over them. */
    bool empty =
        !*text || *text == ',' || text[strlen(text) - 1] == ',' || strstr(text, ",,");
    char *copy, *save = NULL;
    int rc = OK;

    if (empty)
        return err_set(ERR_ARG, "roles: expected KIND=N, found \"\" in \"%.60s\"",
                       text ? text : "");
    copy = mem_strdup(MEM_OTHER, text);
    if (!copy)
        return ERR_NOMEM;
    for (char *item = strtok_r(copy, ",", &save); item && rc == OK;
         item = strtok_r(NULL, ",", &save))
        rc = parse_kind(s, item);
    mem_free(copy);
    return rc;
}

int roles_spec_parse(struct roles_spec *out, const char *text,
                     const struct serve_opts *base)
{
    int rc = OK;

    *out = (struct roles_spec){0};
    for (int k = 0; k < CLUSTER_N_POOLS; k++) {
        int copied = opt_copy(serve_opt_table, &out->engine[k], base, sizeof(*base));

        rc = rc == OK ? copied : rc;
    }
    if (rc == OK)
        rc = parse_items(out, text);
    return rc == OK ? check(out) : rc;
}

void roles_spec_free(struct roles_spec *s)
{
    for (int k = 0; k < CLUSTER_N_POOLS; k++)
        opt_free(serve_opt_table, &s->engine[k]);
}

bool roles_divide_cpus(int *lo, const int64_t *threads, int n, int n_cpus)
{
    int64_t rest = n_cpus;
    int n_equal = 0, i_equal = 0, at = 0;

    for (int i = 0; i < n; i++) {
        rest -= threads[i];
        n_equal += threads[i] == 0;
    }
    if (rest < n_equal)
        return false;
    for (int i = 0; i < n; i++) {
        lo[i] = at;
        at += threads[i] > 0
                  ? (int)threads[i]
                  : (int)(rest * (i_equal + 1) / n_equal - rest * i_equal / n_equal);
        i_equal += threads[i] == 0;
    }
    lo[n] = at;
    return true;
}

void roles_setup_number(struct roles_setup *u)
{
    u->n = 0;
    for (int k = 0; k < CLUSTER_N_POOLS; k++)
        for (int i = 0; i < u->spec.n[k]; i++) {
            u->home[u->n] = (enum cluster_pool)k;
            snprintf(u->names[u->n], sizeof(u->names[u->n]), "%s machine %d of %d",
                     cluster_pool_names[k], 1 + i, u->spec.n[k]);
            u->n++;
        }
}

int roles_setup_parse(struct roles_setup *u, const char *text,
                      const struct serve_opts *engine)
{
    TRY(roles_spec_parse(&u->spec, text, engine));
    if (engine->draft)
        return err_set(ERR_UNSUPPORTED, "draft: not with prompt and token machines");
    roles_setup_number(u);
    return OK;
}
