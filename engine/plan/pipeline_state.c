#include "plan/pipeline_state.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#define VERSION   1
#define MAX_BYTES (256 << 20)

static int read_candidates(struct plan_state *s, const json_t *root, const char *path)
{
    const json_t *a = NULL, *one;
    int rc = json_get_arr(root, "candidates", &a, path);
    size_t i;

    if (rc == OK && (json_array_size(a) < 1 || json_array_size(a) > PLAN_RANKED_MAX))
        rc = err_set(ERR_FORMAT, "%s: candidates: expected 1 to %d, found %zu", path,
                     PLAN_RANKED_MAX, json_array_size(a));
    if (rc != OK)
        return rc;
    s->v = mem_new(MEM_OTHER, json_array_size(a), sizeof(*s->v));
    if (!s->v)
        return ERR_NOMEM;
    json_array_foreach(a, i, one)
    {
        s->n++;
        rc = plan_of_json(&s->v[i], one, path);
        if (rc != OK)
            break;
    }
    return rc;
}

static int read_trials(struct plan_state *s, const json_t *root, const char *path)
{
    const json_t *a = NULL, *one;
    int rc = json_get_arr(root, "trials", &a, path);
    size_t i;

    if (rc != OK)
        return rc;
    json_array_foreach(a, i, one)
    {
        json_int_t alternative = json_integer_value(json_array_get(one, 0));
        double seconds = json_number_value(json_array_get(one, 1));

        if (i == PLAN_TRIALS_MAX || json_array_size(one) != 2 || alternative < 0 ||
            alternative >= 2 * s->n || !(seconds > 0))
            return err_set(ERR_FORMAT,
                           "%s: trials: entry %zu: expected [alternative, seconds]", path,
                           i);
        s->trials[i].alternative = (int)alternative;
        s->trials[i].seconds = seconds;
        s->n_trials++;
    }
    return OK;
}

static int parse(struct plan_state *s, const json_t *root, const char *path)
{
    int64_t version, n_tuned = 0, size = 0;
    int rc = read_candidates(s, root, path);

    if (rc == OK)
        rc = json_get_int(root, "version", VERSION, VERSION, &version, path);
    if (rc == OK)
        rc = json_get_int(root, "n_tuned", 0, s->n, &n_tuned, path);
    if (rc == OK)
        rc = json_get_int(root, "replay_size", 0, 1 << 20, &size, path);
    s->n_tuned = (int)n_tuned;
    s->replay_size = (int)size;
    return rc == OK ? read_trials(s, root, path) : rc;
}

int plan_state_read(struct plan_state *s, const struct plan_pipeline_opts *o)
{
    json_t *root = NULL;
    int rc = json_read_file(&root, o->state_path, MAX_BYTES);

    memset(s, 0, sizeof(*s));
    if (rc == ERR_NOTFOUND)
        err_clear();
    else if (rc == OK && !json_equal(json_object_get(root, "key"), o->key))
        rc = err_set(ERR_NOTFOUND,
                     "%s is of other options, another model or another machine: it is "
                     "begun again",
                     o->state_path);
    else if (rc == OK)
        rc = parse(s, root, o->state_path);
    if (rc != OK && rc != ERR_NOMEM) {
        if (*err_msg())
            log_warn("%s", err_msg());
        err_clear();
        rc = ERR_NOTFOUND;
    }
    if (rc != OK)
        plan_state_fini(s);
    json_decref(root);
    return rc;
}

int plan_state_write(const struct plan_state *s, const struct plan_pipeline_opts *o)
{
    json_t *plans = json_array(), *trials = json_array(), *root = NULL;
    bool ok = plans && trials;
    int rc;

    for (int i = 0; i < s->n && ok; i++)
        ok = json_array_append_new(plans, plan_to_json(&s->v[i])) == 0;
    for (int i = 0; i < s->n_trials && ok; i++)
        ok = json_array_append_new(trials, json_pack("[i, f]", s->trials[i].alternative,
                                                     s->trials[i].seconds)) == 0;
    if (ok)
        root = json_pack("{s:i, s:O, s:O, s:O, s:i, s:i}", "version", VERSION, "key",
                         o->key, "candidates", plans, "trials", trials, "n_tuned",
                         s->n_tuned, "replay_size", s->replay_size);
    rc = root ? json_write_file(root, o->state_path)
              : err_set(ERR_NOMEM, "%s: no memory for its text", o->state_path);
    json_decref(root);
    json_decref(plans);
    json_decref(trials);
    return rc;
}

void plan_state_fini(struct plan_state *s)
{
    for (int i = 0; i < s->n; i++)
        plan_fini(&s->v[i]);
    mem_free(s->v);
    memset(s, 0, sizeof(*s));
}
