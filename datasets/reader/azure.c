#include <string.h>

#include "datasets/build.h"
#include "datasets/csv.h"

/* Azure LLM inference trace: TIMESTAMP,ContextTokens,GeneratedTokens. The 2023 files
 * write "2023-11-16 18:15:46.6805900", those of 2024 "2024-05-10 00:00:00.009930+00:00".
 */

/* Days from 1970-01-01 of the Gregorian calendar. */
static int64_t days_from_civil(int64_t y, int m, int d)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t leap_years = (y - 1) / 4 - (y - 1) / 100 + (y - 1) / 400;
    int is_leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

    return 365 * (y - 1) + leap_years + before[m - 1] + (m > 2 && is_leap) + d - 1 -
           719162;
}

static int days_of_month(int y, int m)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

    return days[m - 1] + (m == 2 && is_leap);
}

/* A minute has a 61st second only where UTC may put one: at the end of June and of December. */
static bool may_leap(const int f[6])
{
    return ((f[1] == 6 && f[2] == 30) || (f[1] == 12 && f[2] == 31)) && f[3] == 23 &&
           f[4] == 59;
}

/* Nanoseconds since 1970 of "YYYY-MM-DD hh:mm:ss[.fraction][Z|+00:00]"; -1 if it is none.
 */
static int64_t parse_time_ns(const char *s)
{
    static const char shape[] = "dddd-dd-dd dd:dd:dd";
    int f[6] = {0}, field = 0;
    int64_t frac = 0;
    const char *p = s;

    for (size_t i = 0; i < sizeof(shape) - 1; i++, p++) {
        if (shape[i] != 'd') {
            if (*p != shape[i])
                return -1;
            field++;
        } else if (*p < '0' || *p > '9') {
            return -1;
        } else {
            f[field] = 10 * f[field] + (*p - '0');
        }
    }
    if (f[0] < 1970 || f[0] > 2200 || f[1] < 1 || f[1] > 12 || f[2] < 1 ||
        f[2] > days_of_month(f[0], f[1]) || f[3] > 23 || f[4] > 59 ||
        f[5] > 59 + may_leap(f))
        return -1;
    if (*p == '.') {
        int64_t unit = 100000000;

        if (*++p < '0' || *p > '9')
            return -1;
        for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
            frac += (*p - '0') * unit; /* digits below the nanosecond count for nothing */
    }
    if (*p && strcmp(p, "Z") != 0 && strcmp(p, "+00:00") != 0)
        return -1;
    return (((days_from_civil(f[0], f[1], f[2]) * 24 + f[3]) * 60 + f[4]) * 60 + f[5]) *
               INT64_C(1000000000) +
           frac;
}

static int time_ns(const struct dataset_csv *t, int column, int64_t *ns)
{
    *ns = parse_time_ns(t->fields[column]);
    return *ns >= 0
               ? OK
               : dataset_csv_refuse(t, column, "a time like 2023-11-16 18:15:46.6805900");
}

static int azure_open(struct dataset *d, const struct dataset_opts *o)
{
    static const struct dataset_csv_form form = {.arrival = "TIMESTAMP",
                                                 .prompt = "ContextTokens",
                                                 .output = "GeneratedTokens",
                                                 .needs_arrival = true,
                                                 .time_ns = time_ns};

    return dataset_read_csv(d, o, &form);
}

const struct dataset_reader dataset_reader_azure = {
    .name = "azure",
    .help = "Azure LLM inference trace (TIMESTAMP, ContextTokens, GeneratedTokens)",
    .needs_path = true,
    .columns = "ContextTokens",
    .open = azure_open,
};
