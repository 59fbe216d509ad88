/* sandwich serve: the engine behind an OpenAI-compatible HTTP server. */
#include "cli/cli.h"
#include "cli/offload.h"

#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/json.h"
#include "base/log.h"
#include "http/http.h"
#include "roles/roles.h"
#include "serve/serve.h"

struct serve_flags {
    struct serve_opts serve; /* first: its table's offsets hold here */
    struct http_opts http;
    struct roles_opts roles;
    struct cli_offload_flags offload;
};
#define OPT_OF struct serve_flags
static const struct opt_row own_rows[] = {CLI_OFFLOAD_ROWS, {0}};

/* The request for which --explain and --dry-run predict the speed. */
#define ABOUT_PROMPT 512
#define ABOUT_NEW    128

static double gb(const json_t *o, const char *key)
{
    return 1e-9 * json_f64_at(o, key);
}

/* What is served, and on what of the machine. */
static void say_engine(struct serve *s)
{
    const struct model_config *c = &s->config;
    json_t *d = NULL, *model, *plan, *budget;

    log_info("sandwich %s (%.12s%s)", build_info.version, build_info.commit,
             build_info.dirty ? ", modified" : "");
    if (serve_describe(s, &d) != OK) { /* of the machines of --roles */
        err_clear();
        log_info("model: %s, family %s, context %lld of %d tokens, %lld slots", c->name,
                 c->arch, (long long)s->max_tok, c->max_tok, (long long)s->o.max_seqs);
        return;
    }
    model = json_object_get(d, "model");
    plan = json_object_get(d, "plan");
    budget = json_object_get(d, "cpu_budget");
    log_info("model: %s, family %s, weights %s, precision %s, context %lld of %d tokens, "
             "%lld slots",
             c->name, c->arch, json_str_at(d, "weight_type", "?"),
             json_str_at(d, "precision", "?"), (long long)s->max_tok, c->max_tok,
             (long long)s->o.max_seqs);
    log_info("threads: prefill %.0f, decode %.0f, by %s; CPUs %s: %s",
             json_f64_at(d, "prefill_threads"), json_f64_at(d, "decode_threads"),
             json_str_at(plan, "source", "?"), json_str_at(budget, "cpus", "?"),
             json_str_at(budget, "reason", "?"));
    log_info("memory: weights %.3g GB, keys and values %.3g GB (%s, %s) for %.0f tokens",
             gb(model, "packed_bytes"), gb(json_object_get(d, "memory"), "kv_pool_bytes"),
             serve_kv_type_name(&s->o), s->o.kv_alloc,
             json_f64_at(json_object_get(d, "memory"), "kv_budget_tok"));
    json_decref(d);
}

static int announce(const struct serve_flags *f, const struct http *h, struct serve *s)
{
    const bool v6 = strchr(f->http.host, ':') != NULL;

    if (f->http.port == 0 && (printf("%d\n", http_port(h)) < 0 || fflush(stdout) != 0))
        return err_set(ERR_IO, "standard output: cannot write the port: %m");
    say_engine(s);
    log_info("serving on http://%s%s%s:%d", v6 ? "[" : "", f->http.host, v6 ? "]" : "",
             http_port(h));
    if (strncmp(f->http.host, "127.", 4) != 0 && strcmp(f->http.host, "::1") != 0 &&
        strcmp(f->http.host, "localhost") != 0 && !http_wants_key(h))
        log_warn("other machines can use this server without a key; --api-key-file sets "
                 "one");
    return OK;
}

/* The engine of this process, or the one in front of machines. */
static int open_engine(struct serve **out, const struct serve_flags *f,
                       struct cli_offload *offload)
{
    static char doing[] = "loading";

    return f->roles.roles
               ? roles_open(out, &f->serve, &f->roles)
               : serve_open_with(out, &f->serve,
                                 &(struct serve_how){.offload = cli_offload_hook(offload),
                                                     .progress = cli_progress,
                                                     .ctx = doing});
}

static int serve(const struct serve_flags *f, struct cli_offload *offload)
{
    struct serve *s = NULL;
    struct http *h = NULL;
    int rc = http_bind(&h, &f->http);

    if (rc == OK)
        rc = open_engine(&s, f, offload);
    cli_catch_interrupts();
    if (rc == OK)
        rc = http_start(h, s, &f->serve);
    if (rc == OK)
        rc = announce(f, h, s);
    if (rc == OK)
        rc = http_run(h, &cli_interrupted);
    http_close(&h);
    serve_close(&s);
    return rc;
}

static int run(const struct verb_words *w)
{
    const struct serve_flags *f = w->opts;
    struct cli_offload *offload = NULL;
    bool machine;
    int rc;

    if (!f->serve.model)
        return err_set(ERR_ARG, "--model is needed: the file of the model to serve");
    serve_warn_one_seq(&f->serve, "--max-seqs");
    machine = roles_is_machine(&f->roles);
    if ((machine || f->roles.roles) && strcmp(f->offload.accel, "none") != 0)
        return err_set(ERR_ARG, "--accel is for an engine of one process: leave out "
                                "--roles, --role and mpirun");
    if (machine)
        return roles_machine_serve(&f->serve, &f->roles);
    rc = cli_offload_open(&offload, &f->offload, &f->serve, ABOUT_PROMPT, ABOUT_NEW);
    if (rc == OK)
        rc = f->offload.dry_run ? cli_offload_print(offload) : serve(f, offload);
    cli_offload_close(&offload);
    return rc;
}

/* The defaults of a server. */
static const struct opt_change changes[] = {
    {.name = "policy", .def = "continuous"}, {.name = "max_seqs", .def = "8"}, {0}};

const struct verb cli_verb_serve = {
    .name = "serve",
    .help = "Serve a model over HTTP with OpenAI's API.",
    .place = 2,
    .usage =
        {.line = "sandwich serve --model FILE [options]",
         .about = "Serve a model over HTTP with OpenAI's API: /v1/completions, "
                  "/v1/chat/completions, /v1/models, and /health and /metrics. SIGTERM, "
                  "SIGINT or "
                  "SIGHUP ends it when the running requests have ended. With --accel the "
                  "speed is "
                  "predicted for one request with a prompt of 512 tokens and 128 new "
                  "ones; what "
                  "clients and /metrics see is the clock on the wall, in which values of "
                  "sim and "
                  "paced are computed as well.",
         .examples =
             "  sandwich serve --model llama-160m.gguf --max-seqs 4\n"
             "  sandwich serve --model llama-160m.gguf --roles prompt=1,token=1\n"
             "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once\", "
             "\"max_tokens\": 32}'\n"
             "  sandwich serve --model m.gguf --accel paced --accel-profile p.json "
             "--explain\n"},

    .fills = {"model"},
    .opts = {{serve_opt_table, 0, changes},
             {http_opt_table, offsetof(struct serve_flags, http)},
             {roles_opt_table, offsetof(struct serve_flags, roles)},
             {own_rows}},
    .opts_bytes = sizeof(struct serve_flags),
    .run = run,
};
