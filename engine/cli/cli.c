#include "cli/cli.h"
#include "cli/sampling.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "measure/card.h"

volatile sig_atomic_t cli_interrupted;

static void on_interrupt(int sig)
{
    cli_interrupted = sig;
}

void cli_catch_interrupts(void)
{
    const struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    struct sigaction now;

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &act, NULL);
}

int cli_print_json(const json_t *j)
{
    char *text = j ? json_text(j, JSON_INDENT(2)) : NULL;

    if (!text)
        return err_set(ERR_NOMEM, "no memory for the result");
    puts(text);
    mem_free(text);
    return OK;
}

void cli_progress(void *ctx, int64_t done_bytes, int64_t all_bytes)
{
    static uint64_t last_ns;
    uint64_t now = clock_ns();
    double frac = all_bytes > 0 ? (double)done_bytes / (double)all_bytes : 1;
    int n = (int)(frac * 30);

    if (!isatty(STDERR_FILENO) || (now - last_ns < 100000000 && done_bytes < all_bytes))
        return;
    last_ns = now;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f %% of %.2f GB", (const char *)ctx, n,
            "##############################", 30 - n, "", 100 * frac,
            (double)all_bytes * 1e-9);
    if (done_bytes >= all_bytes)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
}

int cli_read_grammar(const char *grammar, const char *json_schema,
                     struct serve_grammar *out)
{
    const char *path = grammar ? grammar : json_schema;
    char *text;

    *out = (struct serve_grammar){.is_schema = json_schema};
    if (!path)
        return OK;
    if (grammar && json_schema)
        return err_set(ERR_ARG, "expected either --grammar or --json-schema, found both");
    TRY(file_read(&text, &out->n, path, (size_t)1 << 24)); /* the engine takes less */
    out->text = text;
    return OK;
}

int cli_read_card(const char *path, json_t **card)
{
    int rc = measure_card_read(card, path);

    if (rc == OK || path || rc == ERR_NOMEM)
        return rc;
    if (rc != ERR_NOTFOUND)
        log_warning("machine_card_refused", NAN, NAN, "%s", err_msg());
    err_clear();
    return OK;
}
