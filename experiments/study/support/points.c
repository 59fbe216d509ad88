#include "experiments/study/support/points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "datasets/dataset.h"

#define PRINTED "printed:"

/* The settings of the published file, with times by a form near those of an A100. */
static int make_form(struct cluster_point **out, int *n)
{
    static const int64_t settings[][3] = {
        {512, 1, 128},  {512, 2, 128},  {512, 4, 128},  {512, 8, 128}, {512, 16, 128},
        {512, 32, 128}, {512, 64, 128}, {128, 1, 128},  {256, 1, 128}, {1024, 1, 128},
        {2048, 1, 128}, {4096, 1, 128}, {8192, 1, 128}, {512, 1, 256}, {512, 1, 512},
        {512, 1, 1024}, {512, 1, 2048}, {512, 1, 4096}, {512, 1, 8192}};

    *n = sizeof(settings) / sizeof(settings[0]);
    *out = mem_new(MEM_OTHER, (size_t)*n, sizeof(**out));
    for (int i = 0; i < *n; i++) {
        double l = (double)settings[i][0], b = (double)settings[i][1];

        (*out)[i] =
            (struct cluster_point){.prompt_tok = settings[i][0],
                                   .batch = settings[i][1],
                                   .output_tok = settings[i][2],
                                   .prompt_ms = 40 + 0.11 * b * l + 5e-6 * b * l * l,
                                   .token_ms = 42 + 2e-4 * b * l + 0.35 * b,
                                   .power = NAN,
                                   .power_most = NAN,
                                   .e2e_ms = NAN};
    }
    return OK;
}

static int read_printed(struct cluster_point **out, int *n, const char *hardware)
{
    int rc;

    *out = mem_new(MEM_OTHER, 8, sizeof(**out));
    rc = cluster_points_printed(*out, n, 8, hardware);
    if (rc != OK) {
        mem_free(*out);
        *out = NULL;
    }
    return rc;
}

/* MODEL:HARDWARE:N */
static int read_published(struct cluster_point **out, int *n, const char *source,
                          const char *file)
{
    char path[1024], words[3][64];
    int end = 0;

    if (sscanf(source, "%63[^:]:%63[^:]:%63[0-9]%n", words[0], words[1], words[2],
               &end) != 3 ||
        source[end])
        return err_set(ERR_ARG,
                       "source: expected MODEL:HARDWARE:TP, printed:HARDWARE, form or a "
                       "FILE.csv, found \"%s\"",
                       source);
    home_data(path, sizeof(path), file);
    if (access(path, R_OK) != 0)
        return dataset_absent(file);
    return cluster_rows_read(out, n, path, words[0], words[1],
                             strtoll(words[2], NULL, 10));
}

static bool is_file(const char *source)
{
    size_t n = strlen(source);

    return n > 4 && strcmp(source + n - 4, ".csv") == 0;
}

int study_points_read(struct cluster_point **out, int *n, const char *source,
                      const char *file)
{
    if (strcmp(source, "form") == 0)
        return make_form(out, n);
    if (strncmp(source, PRINTED, strlen(PRINTED)) == 0)
        return read_printed(out, n, source + strlen(PRINTED));
    if (is_file(source))
        return cluster_rows_read(out, n, source, NULL, NULL, 0);
    return read_published(out, n, source, file);
}

const char *study_points_evidence(const char *source)
{
    return strcmp(source, "form") == 0 ? "model"
           : is_file(source)           ? "measured"
                                       : "published";
}

double study_points_prompt_ms(const struct cluster_perf *p,
                              const struct cluster_point *at)
{
    double n = (double)(at->prompt_tok * at->batch);

    return p->kind->prompt_ms(p, n, n * (double)at->prompt_tok);
}

double study_points_token_ms(const struct cluster_perf *p, const struct cluster_point *at)
{
    return p->kind->token_ms(p, (double)at->batch, (double)(at->prompt_tok * at->batch));
}
