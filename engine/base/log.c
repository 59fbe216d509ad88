#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define LINE_MAX_BYTES 1024
#define N_WARNINGS     256

static _Atomic int level_max = LOG_INFO;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink_fn;
static void *sink_ctx;

static pthread_mutex_t warnings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_warning warnings[N_WARNINGS];
static int n_warnings;

void log_set_level(enum log_level level)
{
    atomic_store(&level_max, (int)level);
}

void log_set_sink(log_sink_fn sink, void *ctx)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_ctx = ctx;
    pthread_mutex_unlock(&sink_lock);
}

static void emit(enum log_level level, const char *text)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    char line[LINE_MAX_BYTES];

    utf8_show(line, sizeof(line), text); /* it may quote a hostile file */

    pthread_mutex_lock(&sink_lock);
    if (sink_fn)
        sink_fn(sink_ctx, level, line);
    else
        fprintf(stderr, "%s%s\n", names[level], line);
    pthread_mutex_unlock(&sink_lock);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list ap;

    if ((int)level > atomic_load(&level_max))
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    emit(level, line);
}

/* When the list is full its last entry counts what was lost: the first warnings are
 * nearest the cause, so they stay. */
static void keep(const struct log_warning *w)
{
    struct log_warning *last = &warnings[N_WARNINGS - 1];

    pthread_mutex_lock(&warnings_lock);
    if (n_warnings < N_WARNINGS) {
        warnings[n_warnings++] = *w;
    } else {
        double lost =
            strcmp(last->code, "warnings_dropped") == 0 ? last->observed + 1 : 2;
        *last = (struct log_warning){
            .code = "warnings_dropped", .observed = lost, .threshold = N_WARNINGS};
        snprintf(last->text, sizeof(last->text), "%.0f further warnings were not kept",
                 lost);
    }
    pthread_mutex_unlock(&warnings_lock);
}

void log_warning(const char *code, double observed, double threshold, const char *fmt,
                 ...)
{
    struct log_warning w = {.observed = observed, .threshold = threshold};
    char text[sizeof(w.text) + 4];
    va_list ap;

    snprintf(w.code, sizeof(w.code), "%s", code);
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    utf8_show(w.text, sizeof(w.text), text);
    keep(&w);
    log_line(LOG_WARN, "%s: %s", w.code, w.text);
}

int log_warnings_take(struct log_warning *out, int max)
{
    int n;

    pthread_mutex_lock(&warnings_lock);
    n = max < n_warnings ? max : n_warnings;
    if (n > 0) {
        memcpy(out, warnings, (size_t)n * sizeof(*out));
        memmove(warnings, warnings + n, (size_t)(n_warnings - n) * sizeof(*out));
        n_warnings -= n;
    }
    pthread_mutex_unlock(&warnings_lock);
    return n > 0 ? n : 0;
}
