#include "tests/support/test.h"

#include "base/sha256.h"

static void check(const void *p, size_t n, const char *want)
{
    char text[SHA256_TEXT];

    for (size_t piece = 1; piece < 200; piece += 21) {
        struct sha256 s;

        sha256_init(&s);
        for (size_t at = 0; at < n; at += piece)
            sha256_add(&s, (const char *)p + at, n - at < piece ? n - at : piece);
        sha256_end(&s, text);
        assert_string_equal(text, want);
    }
}

/* The first three are the examples of the standard and its empty message; the others, of 55 to
 * 64 bytes, are where the end of a message begins a block of its own. */
TEST(known_values)
{
    char a[64];

    memset(a, 'a', sizeof(a));
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check(a, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    check(a, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    check(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}
