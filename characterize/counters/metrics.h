/* characterize/counters/metrics.h - the seven metrics of a phase from named raw counts.
 *
 * characterize/counters/events/NAME.json says for a family of processors which events there
 * are, what each is called by PAPI and by the kernel, and how the metrics follow:
 *     metric = scale * sum(num) / sum(den)
 * or, with "spread", scale * (standard deviation over num's parts) / sum(den). A metric
 * that the processor cannot give is listed with the reason. Paper: Sandwich 3.1.
 * Threads: a list is read only; a meter belongs to the thread that opened it. */
#ifndef COUNTERS_METRICS_H
#define COUNTERS_METRICS_H

#include <stdbool.h>

#include "characterize/counters/counters.h"

#define COUNTERS_EVENTS_MAX 24
#define COUNTERS_ALIAS_MAX  12
#define COUNTERS_TERMS_MAX  4
#define COUNTERS_EVENTS_DIR "characterize/counters/events"

enum counters_metric_id {
    COUNTERS_IPC,
    COUNTERS_L3LPKI,
    COUNTERS_DTLB_MISS,
    COUNTERS_RAR,
    COUNTERS_MCLPKI,
    COUNTERS_MCIPKI,
    COUNTERS_BUSPKI,
    COUNTERS_N_METRICS
};
/* "IPC", "L3LPKI", "DTLBMiss", "RAR", "MCLPKI", "MCIPKI", "BUSPKI" */
const char *counters_metric_name(enum counters_metric_id m);

struct counters_event {
    char name[32];
    char papi[COUNTERS_NAME_MAX]; /* "": none */
    /* The kernel's names; several are parts of one event (its units). */
    char perf[COUNTERS_ALIAS_MAX][COUNTERS_NAME_MAX];
    int n_perf;
    bool machine; /* counted for the whole machine, so by one thread only */
};

struct counters_metric {
    char unit[32], why[160]; /* why != "": not on this processor */
    int num[COUNTERS_TERMS_MAX], den[COUNTERS_TERMS_MAX]; /* indices of events */
    int n_num, n_den;
    double scale;
    bool spread;
};

struct counters_cpu {
    char vendor[32];   /* "GenuineIntel"; Arm: the implementer, "0x41" */
    int family, model; /* Arm: the architecture, the part */
};
/* From the text of /proc/cpuinfo. ERR_FORMAT: neither an x86's nor an Arm's. */
MUST int counters_cpu_parse(const char *text, struct counters_cpu *out);
MUST int counters_cpu_get(struct counters_cpu *out);

struct counters_list {
    char about[96];
    char vendor[32]; /* "*": any */
    int family, models[32], n_models;
    struct counters_event events[COUNTERS_EVENTS_MAX];
    int n_events;
    struct counters_metric metrics[COUNTERS_N_METRICS];
};
/* Read a list. Errors name file and key; an unknown key the nearest known one. */
MUST int counters_list_read(struct counters_list *out, const char *path);
/* The list in `dir` that matches, else its generic.json. */
MUST int counters_list_find(struct counters_list *out, const char *dir,
                            const struct counters_cpu *cpu);

/* All metrics from one value for each event of the list. A metric that lacks an event is
 * NaN with the event's reason; one with nothing below the line too. */
void counters_metrics(const struct counters_list *l, const struct counters_value *raw,
                      struct counters_value out[COUNTERS_N_METRICS]);

/* Counting the events of a list by this thread: each through PAPI if it can, else through
 * the kernel. `whole_machine`: those of the whole machine too; one thread does. */
struct counters_meter;
MUST int counters_meter_open(struct counters_meter **out, const struct counters_list *l,
                             bool whole_machine);
void counters_meter_close(struct counters_meter **m);
int counters_meter_passes(const struct counters_meter *m);
void counters_meter_start(struct counters_meter *m, int pass);
void counters_meter_stop(struct counters_meter *m, int pass);
/* [l->n_events]; events that this thread leaves to another are 0 with no parts. */
void counters_meter_read(const struct counters_meter *m, struct counters_value *out);

#endif
