/* tests/support/report_fixture.h - a folder with jobs, claims, findings and records of a made-up
 * kind, which the tests of pages share. */
#ifndef TESTS_SUPPORT_REPORT_FIXTURE_H
#define TESTS_SUPPORT_REPORT_FIXTURE_H

#include "tests/support/fixture.h"

/* What has no meaning on any page. */
#define FIXTURE_HOSTILE "<script>alert(1)</script>|`\x1b[2J\"'&"

/* a in [a/2, 2*a], "b 1" = b, c missing for FIXTURE_HOSTILE, and the share of a bound. Seven cells,
 * of which the last failed and 3 warn of `code`. */
struct fixture_record {
    const char *stem, *cpu, *utc, *host, *code;
    double a, b, share;
};
extern const struct fixture_record fixture_first; /* of e, with a < b */
void fixture_record_make(const struct fixture_record *m);

/* Go to a folder with the jobs e, f and g, which cannot be read; the claim "order", a < b of e; and
 * four findings, one shown and one of each reason why not. `top`: for fixture_leave(). */
void fixture_enter(char top[600]);
void fixture_leave(const char *top);

/* page/NAME as a text, mem_free(); the page made of all records there are. */
char *fixture_page(const char *name);
void fixture_save_page(void);

#endif
