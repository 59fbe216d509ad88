#include "tests/support/failing_disk.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"

static int n_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static bool holds(const char *path, const char *text)
{
    size_t n;
    char *got = test_read(path, &n);
    bool same = n == strlen(text) && memcmp(got, text, n) == 0;

    mem_free(got);
    return same;
}

/* Whatever fails, the old file stays until the new one is whole; nothing is left over. */
TEST(whole_or_as_before)
{
    char dir[500], path[600];
    int k, rc;

    snprintf(dir, sizeof(dir), "%s/a/b/c", test_dir());
    snprintf(path, sizeof(path), "%s/file", dir);
    assert_ok(file_make_dirs(dir));
    assert_ok(file_make_dirs(dir));
    for (k = 0;; k++) {
        assert_ok(file_write(path, "the old one", 11));
        calls_left = k;
        rc = file_write(path, "another", 7);
        calls_left = -1;
        assert_int_equal(n_entries(dir), 1);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_IO);
        assert_true(holds(path, k < 3 ? "the old one" : "another"));
    }
    assert_int_equal(k, 4); /* write, sync, rename, sync of the folder */
    assert_true(holds(path, "another"));
}

/* Renaming over what is no file would destroy it.
 * Regression: an empty file name was read past its end. */
TEST(only_files_are_replaced)
{
    char path[600];
    struct stat before, after;

    snprintf(path, sizeof(path), "%s/node", test_dir());
    assert_err(file_write("", "x", 1), ERR_ARG, "needs a name");
    assert_err(file_write(test_dir(), "x", 1), ERR_ARG, "found a folder");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_err(file_write(path, "x", 1), ERR_ARG, "found a pipe");
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_err(file_write(path, "x", 1), ERR_ARG, "found a symbolic link");
    unlink(path);
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) != 0)
        test_skip("no device can be made here: %s", strerror(errno));
    assert_int_equal(stat(path, &before), 0);
    assert_err(file_write(path, "x", 1), ERR_ARG, "found a device");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

TEST(inputs_are_no_targets)
{
    char path[600], link_path[600];

    snprintf(path, sizeof(path), "%s/input", test_dir());
    snprintf(link_path, sizeof(link_path), "%s/hard", test_dir());
    assert_ok(file_check_target(path, path)); /* there is none */
    assert_ok(file_write(path, "x", 1));
    assert_ok(file_check_target(path, NULL));
    assert_ok(file_check_target(path, test_dir()));
    assert_err(file_check_target(path, path), ERR_ARG, "is an input");
    assert_int_equal(link(path, link_path), 0);
    assert_err(file_check_target(link_path, path), ERR_ARG, "is an input");
}

/* A pipe without a writer: nothing waits for one. */
TEST(only_files_are_read)
{
    char path[600], bytes[2];
    FILE *f;
    int fd;

    snprintf(path, sizeof(path), "%s/read", test_dir());
    assert_err(file_open(&fd, path), ERR_NOTFOUND, "cannot open");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_err(file_open(&fd, path), ERR_IO, "found a pipe");
    assert_err(file_stream(&f, path), ERR_IO, "found a pipe");
    assert_null(f);
    assert_false(file_peek(path, bytes, 1));
    assert_err(file_open(&fd, test_dir()), ERR_IO, "found a folder");
    assert_err(file_open(&fd, "/dev/zero"), ERR_IO, "found a device");
    assert_int_equal(fd, -1);
    unlink(path);
    assert_ok(file_write(path, "x", 1));
    assert_true(file_peek(path, bytes, 1) && bytes[0] == 'x');
    assert_false(file_peek(path, bytes, 2));
    assert_ok(file_stream(&f, path));
    assert_int_equal(fgetc(f), 'x');
    fclose(f);
}

TEST(files_are_read_whole)
{
    char path[600], *bytes;
    size_t n;

    snprintf(path, sizeof(path), "%s/whole", test_dir());
    assert_err(file_read(&bytes, &n, path, 3), ERR_NOTFOUND, "whole");
    assert_null(bytes);
    assert_ok(file_write(path, "a\0c", 3));
    assert_ok(file_read(&bytes, &n, path, 3));
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "a\0c", 3);
    mem_free(bytes);
    assert_err(file_read(&bytes, &n, path, 2), ERR_LIMIT, "larger than the limit of 2");
    assert_null(bytes);
}

TEST(locks_exclude)
{
    char path[600];
    int a, b;

    snprintf(path, sizeof(path), "%s/new/folder/file", test_dir());
    assert_ok(file_lock_parent(&a, path));
    *strrchr(path, '/') = 0;
    b = open(path, O_RDONLY);
    assert_err(file_lock(b, path, false), ERR_STATE, "another process");
    close(a);
    assert_ok(file_lock(b, path, false));
    close(b);
}

TEST(bad_folders)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/plain", test_dir());
    assert_ok(file_write(path, "x", 1));
    assert_err(file_make_dirs(""), ERR_IO, "cannot make");
    snprintf(path, sizeof(path), "%s/plain/below", test_dir());
    assert_err(file_make_dirs(path), ERR_IO, "cannot make");
    assert_err(file_write(path, "x", 1), ERR_IO, "cannot create");
    assert_err(file_sync_dir(path), ERR_IO, "cannot sync the folder");
}
