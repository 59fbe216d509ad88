#include "experiments/report/report.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "experiments/run/figure.h"

#define DRAWN           "paper-figs/out"
#define DRAWN_BYTES_MAX ((size_t)16 << 20)

/* Seconds of the last change; 0: it is not there. */
static double changed_s(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0
               ? (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec
               : 0;
}

/* The last change of what all figures are drawn with. */
static double library_s(void)
{
    char dir[PATH_MAX], path[PATH_MAX + 256];
    double newest = 0;
    DIR *d = opendir(home_find(dir, sizeof(dir), "paper-figs/lib"));
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');

        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (dot && strcmp(dot, ".py") == 0 && changed_s(path) > newest)
            newest = changed_s(path);
    }
    if (d)
        closedir(d);
    return newest;
}

static bool is_current(const char *figure, const char *stem, const char *record)
{
    const double at = changed_s(figure);
    char name[300], script[PATH_MAX];

    snprintf(name, sizeof(name), "paper-figs/%s.py", stem);
    home_find(script, sizeof(script), name);
    return at > changed_s(record) && at > changed_s(script) && at > library_s();
}

/* What `make figures` and `testbed run --draw` have drawn, in all its forms, becomes the page's,
 * where the page has no figure or an older one. */
static void take_drawn(const struct report_experiment *e, const char *dir,
                       const char *record, bool any_age)
{
    static const char *const extensions[] = {"svg", "pdf", "png", "md", "tex", NULL};
    char from[PATH_MAX], to[PATH_MAX + 300];

    snprintf(from, sizeof(from), DRAWN "/%s.svg", e->stem);
    snprintf(to, sizeof(to), "%s/%s.svg", dir, e->stem);
    if (access(from, R_OK) != 0 || changed_s(from) <= changed_s(to) ||
        !(any_age || is_current(from, e->stem, record)))
        return;
    for (int i = 0; extensions[i]; i++) {
        char *bytes = NULL;
        size_t n = 0;

        snprintf(from, sizeof(from), DRAWN "/%s.%s", e->stem, extensions[i]);
        snprintf(to, sizeof(to), "%s/%s.%s", dir, e->stem, extensions[i]);
        if (access(from, R_OK) == 0 &&
            file_read(&bytes, &n, from, DRAWN_BYTES_MAX) == OK &&
            file_write(to, bytes, n) == OK)
            log_debug("%s: taken from %s", to, from);
        mem_free(bytes);
    }
    err_clear(); /* what could not be copied is drawn, or missing */
}

static void draw_one(const struct report *r, struct report_experiment *e, const char *dir,
                     const char *file, bool draw)
{
    const char *record = json_string_value(json_object_get(report_record(r, e), "path"));

    take_drawn(e, dir, record, !draw);

    if (draw && !is_current(file, e->stem, record) &&
        run_figure(e->stem, record, dir, e->job && e->job->n_axes > 0) != OK)
        report_add_problem(e, err_msg());
    else if (access(file, R_OK) == 0)
        snprintf(e->figure, sizeof(e->figure), "figures/%s.svg", e->stem);
    else if (draw)
        report_add_problem(e, "no figure: its script has not written an SVG");
}

int report_draw(struct report *r, const char *out, bool draw)
{
    char dir[PATH_MAX], file[PATH_MAX + 300];

    if (snprintf(dir, sizeof(dir), "%s/figures", out) >= (int)sizeof(dir))
        return err_set(ERR_LIMIT, "%s: the path is too long", out);
    TRY(file_make_dirs(dir));
    for (size_t i = 0; i < r->n; i++) {
        struct report_experiment *e = &r->v[i];

        snprintf(file, sizeof(file), "%s/%s.svg", dir, e->stem);
        if (report_record(r, e))
            draw_one(r, e, dir, file, draw);
    }
    return report_draw_side_by_side(r, out);
}

static int save(const struct text *t, const char *dir, const char *name)
{
    char path[PATH_MAX];

    if (t->rc != OK)
        return t->rc;
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return err_set(ERR_LIMIT, "%s: the path is too long", dir);
    return file_write(path, t->p, t->n);
}

int report_save(const struct report *r, const char *out)
{
    struct text markdown = {0}, html = {0};
    int rc = file_make_dirs(out);

    if (rc == OK)
        rc = report_put_page(&markdown, r, out);
    if (rc == OK)
        rc = save(&markdown, out, "report.md");
    if (rc == OK) {
        report_html(&html, &markdown, REPORT_TITLE, out);
        rc = save(&html, out, "index.html");
    }
    text_fini(&markdown);
    text_fini(&html);
    return rc;
}
