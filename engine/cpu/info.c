#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/sysfile.h"

static int field_int(const char *text, const char *key)
{
    char value[32];

    return cpu_file_field(text, key, value, sizeof(value)) ? (int)strtol(value, NULL, 0)
                                                           : 0;
}

/* One cache of CPU 0; "1024K" in the size file. */
static void cache_add(struct cpu_info *out, int index)
{
    static const char dir[] = "/sys/devices/system/cpu/cpu0/cache/index";
    char text[32], type[16];
    int level;
    int64_t bytes;

    if (cpu_file_read(text, sizeof(text), "", "%s%d/level", dir, index) != OK)
        return;
    level = atoi(text);
    if (cpu_file_read(type, sizeof(type), "", "%s%d/type", dir, index) != OK ||
        strcmp(type, "Instruction") == 0 ||
        cpu_file_read(text, sizeof(text), "", "%s%d/size", dir, index) != OK)
        return;
    bytes = strtoll(text, NULL, 10) << (strchr(text, 'M')   ? 20
                                        : strchr(text, 'K') ? 10
                                                            : 0);
    if (level == 1)
        out->l1d_bytes = bytes;
    else if (level == 2)
        out->l2_bytes = bytes;
    else if (level == 3)
        out->l3_bytes = bytes;
    if (cpu_file_read(text, sizeof(text), "", "%s%d/coherency_line_size", dir, index) ==
            OK &&
        atoi(text) > 0)
        out->line_bytes = atoi(text);
}

void cpu_info_get(struct cpu_info *out)
{
    char text[4096], implementer[8];

    memset(out, 0, sizeof(*out));
    out->line_bytes = 64;
    for (int i = 0; i < 8; i++)
        cache_add(out, i);
    /* the first processor's paragraph is at the beginning */
    if (cpu_file_read(text, sizeof(text), "", "/proc/cpuinfo") != OK)
        return;
    if (cpu_file_field(text, "vendor_id", out->vendor, sizeof(out->vendor))) {
        cpu_file_field(text, "model name", out->model_name, sizeof(out->model_name));
        cpu_file_field(text, "microcode", out->microcode, sizeof(out->microcode));
        out->family = field_int(text, "cpu family");
        out->model = field_int(text, "model");
        out->stepping = field_int(text, "stepping");
    } else if (cpu_file_field(text, "CPU implementer", implementer,
                              sizeof(implementer))) {
        /* Arm names its parts by numbers: implementer, part, variant, revision */
        snprintf(out->vendor, sizeof(out->vendor), "arm %s", implementer);
        out->family = field_int(text, "CPU architecture");
        out->model = field_int(text, "CPU part");
        out->stepping =
            field_int(text, "CPU variant") << 4 | field_int(text, "CPU revision");
        snprintf(out->model_name, sizeof(out->model_name), "part 0x%x", out->model);
    }
}
