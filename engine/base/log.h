/* base/log.h - messages for people, and warnings that become data. What they quote is
 * written as utf8_show() does.
 *
 * Library code never prints: it logs, and main() decides where that goes (standard error
 * by default). A warning carries a code, an observed value and a threshold, so that a
 * record can hold it. Threads: any; one line is written whole. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_INFO */

typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);
void log_set_sink(log_sink_fn sink, void *ctx); /* NULL: standard error */

void log_line(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* A warning as data. `code` is a stable word ("placement_mismatch"). It is logged, and
 * kept in a list of at most 256 until log_warnings_take(). */
struct log_warning {
    char code[48];
    double observed, threshold;
    char text[256];
};
void log_warning(const char *code, double observed, double threshold, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
/* Move up to `max` kept warnings to `out`, oldest first; returns how many. */
int log_warnings_take(struct log_warning *out, int max);

#endif
