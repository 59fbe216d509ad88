/* A profile as JSON, as text, and as a machine of the models. */
#include "hetero/profile.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "kernels/kern.h"

#define VERSION   1
#define MAX_BYTES ((size_t)4 << 20)

/* ---- to JSON ---- */

static json_t *fit_json(const struct hetero_fit *f)
{
    return json_pack(
        "{s:i, s:{s:f, s:f, s:o, s:o, s:o, s:o}, s:{s:f, s:o, s:o, s:o, s:o, s:o}}",
        "n_points", f->n_points, "line", "start_s", f->line.start_s, "s_per_mac",
        f->line.s_per_unit, "r2", json_number(f->line.r2), "one_tok_error",
        json_number(f->line_one_tok), "held_out_error",
        json_number(f->line_errors.median), "held_out_p95_log",
        json_number(f->line_errors.p95_log), "regimes", "start_s", f->regimes.start_s,
        "bytes_per_s", json_number(f->regimes.bytes_per_s), "macs_per_s",
        json_number(f->regimes.macs_per_s), "one_tok_error",
        json_number(f->regimes_one_tok), "held_out_error",
        json_number(f->regimes_errors.median), "held_out_p95_log",
        json_number(f->regimes_errors.p95_log));
}

static json_t *points_json(const struct hetero_profile_cpu *c)
{
    json_t *a = json_array();

    for (int i = 0; i < c->fit.n_points && c->points; i++)
        json_array_append_new(a, json_pack("[f, f, f, f]", c->points[i].weights,
                                           c->points[i].n_tok, c->points[i].bytes,
                                           c->points[i].seconds));
    return a;
}

static json_t *pair_json(const double x[HETERO_N_TOK])
{
    return json_pack("[o, o]", json_number(x[0]), json_number(x[1]));
}

static json_t *cpu_json(const struct hetero_profile *p)
{
    json_t *a = json_array();

    for (int i = 0; i < p->n_cpu; i++) {
        const struct hetero_profile_cpu *c = &p->cpu[i];

        json_array_append_new(
            a,
            json_pack("{s:s, s:i, s:o, s:o, s:o, s:o}", "type", kern_type_name(c->type),
                      "n_threads", c->n_threads, "fit", fit_json(&c->fit),
                      "cpu_contention", pair_json(c->cpu_contention), "link_contention",
                      pair_json(c->link_contention), "points", points_json(c)));
    }
    return a;
}

static json_t *accel_json(const struct hetero_profile *p)
{
    json_t *types = json_array();

    if (!p->accel_name[0]) {
        json_decref(types);
        return json_null();
    }
    for (int i = 0; i < p->n_accel; i++)
        json_array_append_new(types, json_pack("{s:s, s:o}", "type",
                                               kern_type_name(p->accel[i].type), "fit",
                                               fit_json(&p->accel[i].fit)));
    return json_pack("{s:s, s:b, s:f, s:f, s:{s:f, s:f, s:o}, s:o}", "name",
                     p->accel_name, "real_time", p->real_time, "launch_s", p->launch_s,
                     "launch_sigma_s", p->launch_sigma_s, "link", "start_s",
                     p->link.start_s, "s_per_byte", p->link.s_per_unit, "r2",
                     json_number(p->link.r2), "products", types);
}

int hetero_profile_json(const struct hetero_profile *p, json_t **out)
{
    *out = json_pack("{s:i, s:s, s:s, s:o, s:o}", "sandwich_profile", VERSION, "cpu_name",
                     p->cpu_name, "precision", p->kern_precision, "cpu", cpu_json(p),
                     "accel", accel_json(p));
    return *out ? OK : err_set(ERR_NOMEM, "no memory for the profile");
}

/* ---- from JSON ---- */

/* null: no bound. */
static int get_rate(const json_t *o, const char *key, double *out, const char *where)
{
    *out = INFINITY;
    return json_is_null(json_object_get(o, key)) ? OK : json_get_f64(o, key, out, where);
}

static int check_positive(double x, const char *key, const char *where)
{
    return x >= 0 ? OK
                  : err_set(ERR_FORMAT, "%s: %s: expected at least 0, found %g", where,
                            key, x);
}

static int read_fit(struct hetero_fit *f, const json_t *entry, const char *where)
{
    const json_t *fit, *line, *regimes;

    TRY(json_get_obj(entry, "fit", &fit, where));
    TRY(json_get_obj(fit, "line", &line, where));
    TRY(json_get_obj(fit, "regimes", &regimes, where));
    TRY(json_get_f64(line, "start_s", &f->line.start_s, where));
    TRY(json_get_f64(line, "s_per_mac", &f->line.s_per_unit, where));
    f->line.r2 = json_f64_at(line, "r2");
    f->line_one_tok = json_f64_at(line, "one_tok_error");
    f->line_errors.median = json_f64_at(line, "held_out_error");
    f->line_errors.p95_log = json_f64_at(line, "held_out_p95_log");
    TRY(json_get_f64(regimes, "start_s", &f->regimes.start_s, where));
    TRY(get_rate(regimes, "bytes_per_s", &f->regimes.bytes_per_s, where));
    TRY(get_rate(regimes, "macs_per_s", &f->regimes.macs_per_s, where));
    f->regimes_one_tok = json_f64_at(regimes, "one_tok_error");
    f->regimes_errors.median = json_f64_at(regimes, "held_out_error");
    f->regimes_errors.p95_log = json_f64_at(regimes, "held_out_p95_log");
    TRY(check_positive(f->line.start_s, "line.start_s", where));
    TRY(check_positive(f->line.s_per_unit, "line.s_per_mac", where));
    TRY(check_positive(f->regimes.start_s, "regimes.start_s", where));
    TRY(check_positive(f->regimes.bytes_per_s, "regimes.bytes_per_s", where));
    return check_positive(f->regimes.macs_per_s, "regimes.macs_per_s", where);
}

static int read_type(const json_t *entry, enum kern_type *out, const char *where)
{
    const char *name;

    TRY(json_get_str(entry, "type", &name, where));
    return kern_type_parse(name, out) == OK
               ? OK
               : err_set(ERR_FORMAT, "%s: type: no type is called \"%.20s\"", where,
                         name);
}

static void read_pair(const json_t *entry, const char *key, double out[HETERO_N_TOK])
{
    const json_t *a = json_object_get(entry, key);

    for (size_t i = 0; i < HETERO_N_TOK; i++) {
        const json_t *x = json_array_get(a, i);

        out[i] =
            json_is_number(x) && json_number_value(x) >= 0 ? json_number_value(x) : NAN;
    }
}

static int read_cpu(struct hetero_profile *p, const json_t *root, const char *path)
{
    const json_t *list;
    char where[300];

    TRY(json_get_arr(root, "cpu", &list, path));
    if (json_array_size(list) > HETERO_PROFILE_MAX)
        return err_set(ERR_LIMIT, "%s: cpu: more than %d entries", path,
                       HETERO_PROFILE_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct hetero_profile_cpu *c = &p->cpu[p->n_cpu];
        const json_t *entry = json_array_get(list, i);
        int64_t n;

        snprintf(where, sizeof(where), "%.250s: cpu[%zu]", path, i);
        TRY(read_type(entry, &c->type, where));
        TRY(json_get_int(entry, "n_threads", 1, CPU_MAX, &n, where));
        c->n_threads = (int)n;
        TRY(read_fit(&c->fit, entry, where));
        read_pair(entry, "cpu_contention", c->cpu_contention);
        read_pair(entry, "link_contention", c->link_contention);
        c->points = NULL;
        p->n_cpu++;
    }
    return OK;
}

static int read_accel(struct hetero_profile *p, const json_t *root, const char *path)
{
    const json_t *a = json_object_get(root, "accel"), *link, *list;
    char where[300];

    if (json_is_null(a))
        return OK;
    snprintf(where, sizeof(where), "%.250s: accel", path);
    TRY(json_copy_str(a, "name", p->accel_name, sizeof(p->accel_name), where));
    TRY(json_opt_bool(a, "real_time", &p->real_time, where));
    TRY(json_get_f64(a, "launch_s", &p->launch_s, where));
    TRY(json_get_f64(a, "launch_sigma_s", &p->launch_sigma_s, where));
    TRY(json_get_obj(a, "link", &link, where));
    TRY(json_get_f64(link, "start_s", &p->link.start_s, where));
    TRY(json_get_f64(link, "s_per_byte", &p->link.s_per_unit, where));
    p->link.r2 = json_f64_at(link, "r2");
    TRY(check_positive(p->launch_s, "launch_s", where));
    TRY(check_positive(p->link.s_per_unit, "link.s_per_byte", where));
    TRY(json_get_arr(a, "products", &list, where));
    if (json_array_size(list) > HETERO_PROFILE_MAX)
        return err_set(ERR_LIMIT, "%s: more than %d products", where, HETERO_PROFILE_MAX);
    for (size_t i = 0; i < json_array_size(list); i++, p->n_accel++) {
        TRY(read_type(json_array_get(list, i), &p->accel[i].type, where));
        TRY(read_fit(&p->accel[i].fit, json_array_get(list, i), where));
    }
    return OK;
}

static int from_json(struct hetero_profile *out, const json_t *root, const char *path)
{
    int64_t version;

    TRY(json_get_int(root, "sandwich_profile", VERSION, VERSION, &version, path));
    TRY(json_copy_str(root, "cpu_name", out->cpu_name, sizeof(out->cpu_name), path));
    TRY(json_copy_str(root, "precision", out->kern_precision, sizeof(out->kern_precision),
                      path));
    TRY(read_cpu(out, root, path));
    return read_accel(out, root, path);
}

int hetero_profile_read(struct hetero_profile *out, const char *path)
{
    json_t *root = NULL;
    int rc = json_read_file(&root, path, MAX_BYTES);

    *out = (struct hetero_profile){0};
    if (rc == OK)
        rc = from_json(out, root, path);
    json_decref(root);
    return rc;
}

int hetero_profile_write(const struct hetero_profile *p, const char *path)
{
    struct hetero_profile *again = mem_new(MEM_OTHER, 1, sizeof(*again));
    json_t *j = NULL;
    int rc = again ? hetero_profile_json(p, &j) : ERR_NOMEM;

    if (rc == OK) {
        rc = from_json(again, j, path);
        if (rc != OK)
            rc = err_prefix(ERR_STATE, "the profile is noise and is not written; measure "
                                       "again, or longer by --min-ms");
    }
    if (rc == OK)
        rc = json_write_file(j, path);
    json_decref(j);
    mem_free(again);
    return rc;
}

/* ---- for people ---- */

static void put_fit(struct text *t, const char *what, const char *type, int n_threads,
                    const struct hetero_fit *f)
{
    char bandwidth[16] = "-", rate[16] = "-", threads[16] = "";

    if (n_threads > 0)
        snprintf(threads, sizeof(threads), "%d", n_threads);
    if (isfinite(f->regimes.bytes_per_s))
        snprintf(bandwidth, sizeof(bandwidth), "%.1f", 1e-9 * f->regimes.bytes_per_s);
    if (isfinite(f->regimes.macs_per_s))
        snprintf(rate, sizeof(rate), "%.0f", 2e-9 * f->regimes.macs_per_s);
    text_printf(t,
                "%-6s %-6s %7s | %9.2e %9.2e %7.4f %7.1f %8.1f | %8.2e %7s %7s %7.1f "
                "%8.1f\n",
                what, type, threads, f->line.start_s, f->line.s_per_unit, f->line.r2,
                100 * f->line_one_tok, 100 * f->line_errors.median, f->regimes.start_s,
                bandwidth, rate, 100 * f->regimes_one_tok,
                100 * f->regimes_errors.median);
}

int hetero_profile_text(const struct hetero_profile *p, char **out)
{
    struct text t = {0};

    text_printf(&t, "%s, weights multiplied at precision %s\n\n", p->cpu_name,
                p->kern_precision);
    text_puts(&t, "                      | one line: t = a + b n (Eq. 3)                "
                  "| two regimes: t = a + max(bytes/B, FLOP/F)\n"
                  "                      |    a, s  b, s/MAC      r2  T=1, % unseen, % "
                  "|    a, s  B, GB/s F, GFLOP/s T=1, % unseen, %\n");
    for (int i = 0; i < p->n_cpu; i++)
        put_fit(&t, "CPU", kern_type_name(p->cpu[i].type), p->cpu[i].n_threads,
                &p->cpu[i].fit);
    for (int i = 0; i < p->n_accel; i++)
        put_fit(&t, p->accel_name, kern_type_name(p->accel[i].type), 0, &p->accel[i].fit);
    if (p->accel_name[0]) {
        text_printf(&t,
                    "\n%s: launch %.2e s (sigma %.1e); link %.2e s + bytes at %.2f GB/s "
                    "(r2 %.4f)\n",
                    p->accel_name, p->launch_s, p->launch_sigma_s, p->link.start_s,
                    1e-9 / p->link.s_per_unit, p->link.r2);
    }
    for (int i = 0; i < p->n_cpu; i++) {
        const struct hetero_profile_cpu *c = &p->cpu[i];

        if (!isnan(c->cpu_contention[0]))
            text_printf(
                &t,
                "contention, %s, %d threads: while the link copies, products of 1 "
                "token take %.2f times as long, of many %.2f; copies meanwhile "
                "%.2f and %.2f\n",
                kern_type_name(c->type), c->n_threads, 1 + c->cpu_contention[0],
                1 + c->cpu_contention[1], 1 + c->link_contention[0],
                1 + c->link_contention[1]);
    }
    text_puts(&t,
              "\n\"unseen\": median relative error on a fifth of the points, of models "
              "fitted on the others.\n");
    text_put(&t, "", 1);
    *out = t.p;
    if (t.rc != OK)
        text_fini(&t);
    return t.rc;
}

/* ---- as a machine ---- */

static double or_0(double x)
{
    return isnan(x) ? 0 : x;
}

static double finite_or_0(double x)
{
    return isfinite(x) ? x : 0;
}

static int not_measured(const struct hetero_profile *p, enum kern_type type,
                        int n_threads)
{
    struct text t = {0};
    int rc;

    for (int i = 0; i < p->n_cpu; i++)
        text_printf(&t, "%s%s with %d threads", i ? ", " : "",
                    kern_type_name(p->cpu[i].type), p->cpu[i].n_threads);
    text_put(&t, "", 1);
    rc = err_set(ERR_NOTFOUND,
                 "the profile has no products of %s with %d threads; it has %s",
                 kern_type_name(type), n_threads, t.p && *t.p ? t.p : "none");
    text_fini(&t);
    return rc;
}

int hetero_profile_machine(struct hetero_machine *out, double *p95_log,
                           const struct hetero_profile *p, enum kern_type type,
                           int n_threads, int64_t n_tok)
{
    double bytes = kern_type_weight_bytes(type);
    int many = n_tok > 1 ? HETERO_MANY_TOK : HETERO_ONE_TOK;
    bool found = false;

    *out = (struct hetero_machine){.launch_s = p->launch_s,
                                   .link_start_s = p->link.start_s,
                                   .link_s_per_byte = p->link.s_per_unit};
    for (int i = 0; i < p->n_cpu; i++) {
        const struct hetero_profile_cpu *c = &p->cpu[i];

        if (c->type != type || c->n_threads != n_threads)
            continue;
        out->cpu_start_s = c->fit.regimes.start_s;
        out->cpu_s_per_mac = bytes / c->fit.regimes.bytes_per_s;
        out->cpu_macs_per_s = finite_or_0(c->fit.regimes.macs_per_s);
        out->cpu_contention = or_0(c->cpu_contention[many]);
        out->link_contention = or_0(c->link_contention[many]);
        *p95_log = c->fit.regimes_errors.p95_log;
        found = true;
    }
    if (!found)
        return not_measured(p, type, n_threads);
    for (int i = 0; i < p->n_accel; i++) {
        const struct hetero_regimes *r = &p->accel[i].fit.regimes;

        if (p->accel[i].type != type)
            continue;
        out->accel_start_s = r->start_s;
        out->accel_s_per_mac = bytes / r->bytes_per_s;
        out->accel_macs_per_s = finite_or_0(r->macs_per_s);
    }
    return OK;
}
