#include <stdio.h>

#include "base/mem.h"
#include "characterize/probe.h"
#include "experiments/cli/verb.h"
#include "experiments/cli/verb_run.h"
#include "measure/card.h"

#define FULL_CARD "characterize"

struct machine_opts {
    bool force, accept_noise, full, smoke, quiet;
    char *out;
};

#define OPT_OF struct machine_opts
static const struct opt_row table[] = {
    OPT_ROW(BOOL, force, "false",
            "Measure again, even if there is a card of this machine."),
    OPT_ROW(BOOL, accept_noise, "false",
            "Trust bounds even if their trials differ by more than 10 % or other "
            "programs had most of the CPUs. For the quick card only."),
    OPT_ROW(BOOL, full, "false",
            "Measure the full card in a minute or two by running the experiment "
            "characterize. It is kept as JSON and HDF5 and drawn on one page."),
    OPT_ROW(BOOL, smoke, "false",
            "With --full: run the experiment's smoke section, which takes seconds and "
            "does not measure the machine."),
    OPT_ROW(BOOL, quiet, "false", "With --full: print no progress."),
    OPT_ROW(STR, out, NULL,
            "With --full: folder of the record. Default: results/characterize, with "
            "--smoke results/characterize/smoke.",
            .unit = "PATH"),
    {0},
};

/* Takes ownership of `card`. */
static int print_card(int rc, json_t *card)
{
    char *text = NULL;

    if (rc == OK)
        rc = measure_card_text(card, &text);
    if (rc == OK)
        printf("%s", text);
    mem_free(text);
    json_decref(card);
    return rc == OK ? PROGRAM_OK : verb_fail(VERB_INVALID);
}

/* The full card is what the experiment `characterize` measures, records and draws. */
static int full_machine(const struct machine_opts *o)
{
    const struct job_read_opts read = {.smoke = o->smoke};
    const struct verb_run_opts how = {
        .fresh = true, /* a card states the present */
        .quiet = o->quiet,
        .out = o->out,
    };
    struct job *j = NULL;
    json_t *card = NULL;
    struct verb_ran ran;
    const char *dir;
    int status, rc;

    if (job_read(&j, FULL_CARD, &read) != OK)
        return verb_fail(PROGRAM_USAGE);
    status = verb_run_job(&ran, j, &read, &how);
    if (status == PROGRAM_OK) {
        dir = json_string_value(
            json_object_get(json_object_get(j->cells[0].settings, "study"), "dir"));
        rc = measure_card_read_in(&card, dir, "-full"); /* which was just written */
        printf("\n");
        status = print_card(rc, card);
        printf("\nkept in %s (JSON) and %s (HDF5)\n", dir, ran.outcome.path);
        if (verb_draw_ran(j, &ran) != OK)
            verb_fail(PROGRAM_OK); /* the card is complete without its page */
    }
    verb_ran_fini(&ran);
    job_free(&j);
    return status;
}

static int machine(const struct verb_words *w)
{
    const struct machine_opts *o = w->opts;
    const struct machine_card_opts card_opts = {
        .dir = MEASURE_CARD_DIR, .force = o->force, .accept_noise = o->accept_noise};
    json_t *card = NULL;
    int rc;

    if (o->full && o->accept_noise) {
        err_set(ERR_ARG, "--accept-noise is for the quick card, not for --full");
        return verb_fail(PROGRAM_USAGE);
    }
    if (o->full)
        return full_machine(o);
    rc = machine_card_get(&card, &card_opts);
    return print_card(rc, card);
}

const struct verb verb_machine = {
    .name = "machine",
    .help = "Measure bandwidth and peak arithmetic of this machine.",
    .usage = {"testbed machine [options]",
              "Measure read bandwidth and peak arithmetic of this machine and print them "
              "as the "
              "machine card. A card that was measured before is printed at once.",
              "  testbed machine\n"
              "  testbed machine --full\n"},
    .opts = {{table}},
    .opts_bytes = sizeof(struct machine_opts),
    .run = machine,
};
