/* Lists of CPUs as text: "0-3,8". */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"

/* One number of a list; *s moves behind it. */
static int list_number(const char **s, int *out)
{
    char *end;
    long v;

    if (!isdigit((unsigned char)**s))
        return ERR_FORMAT;
    v = strtol(*s, &end, 10);
    if (v > INT_MAX)
        return ERR_FORMAT;
    *s = end;
    *out = (int)v;
    return OK;
}

static int list_error(const char *text, const char *at)
{
    return err_set(ERR_FORMAT,
                   "CPU list \"%.60s\": offset %d: expected numbers as in \"0-3,8\"",
                   text, (int)(at - text));
}

int cpu_list_parse(const char *text, int *cpus, int max, int *n)
{
    const char *s = text;
    int lo, hi;

    *n = 0;
    while (isspace((unsigned char)*s))
        s++;
    while (*s && !isspace((unsigned char)*s)) {
        const char *at = s;

        if (list_number(&s, &lo) != OK)
            return list_error(text, at);
        hi = lo;
        if (*s == '-') {
            s++;
            if (list_number(&s, &hi) != OK || hi < lo)
                return list_error(text, at);
        }
        if (*s == ',' && isdigit((unsigned char)s[1]))
            s++;
        else if (*s && !isspace((unsigned char)*s))
            return list_error(text, s);
        if (hi - lo >= max - *n)
            return err_set(ERR_LIMIT, "CPU list \"%.60s\": more than %d CPUs", text, max);
        for (int c = lo; c <= hi; c++)
            cpus[(*n)++] = c;
    }
    return OK;
}

void cpu_list_print(const int *cpus, int n, char *out, int out_n)
{
    int at = 0;

    if (out_n < 1)
        return;
    out[0] = '\0';
    for (int i = 0, j; i < n && at < out_n; i = j) {
        const char *sep = i ? "," : "";

        for (j = i + 1; j < n && cpus[j] == cpus[j - 1] + 1;)
            j++;
        if (j - i == 1)
            at += snprintf(out + at, (size_t)(out_n - at), "%s%d", sep, cpus[i]);
        else
            at += snprintf(out + at, (size_t)(out_n - at), "%s%d-%d", sep, cpus[i],
                           cpus[j - 1]);
    }
}
