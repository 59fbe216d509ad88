/* tests/support/fake_root.h - machines made of files: what /proc and /sys would say. */
#ifndef TESTS_SUPPORT_FAKE_ROOT_H
#define TESTS_SUPPORT_FAKE_ROOT_H

#include "tests/support/test.h"

#include <sys/stat.h>

struct fake_file {
    const char *path, *text;
};

/* Write the files, up to the one without a path, below a new folder, and return it. Lent until
 * the next call. */
static inline const char *fake_root(const struct fake_file *files)
{
    static char root[512];
    static int n;
    char path[1024];

    snprintf(root, sizeof(root), "%s/root%d", test_dir(), n++);
    for (; files->path; files++) {
        snprintf(path, sizeof(path), "%s%s", root, files->path);
        for (char *s = path + 1; (s = strchr(s, '/')); *s++ = '/') {
            *s = '\0';
            mkdir(path, 0755);
        }
        test_write(path, files->text, strlen(files->text));
    }
    return root;
}

#endif
