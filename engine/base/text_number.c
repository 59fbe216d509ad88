#include "base/text_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MAX 12
#define PLAIN_MAX  1e30 /* more digits say nothing, and must fit */

const char *text_number(char out[TEXT_NUMBER_BYTES], double x, int digits)
{
    char rounded[TEXT_NUMBER_BYTES], *end;
    int places;

    snprintf(rounded, sizeof(rounded), "%.*e", digits - 1, x);
    end = strchr(rounded, 'e');
    if (!isfinite(x) || fabs(x) >= PLAIN_MAX || !end) {
        snprintf(out, TEXT_NUMBER_BYTES, "%.*g", digits, x);
        return out;
    }
    places = digits - 1 - atoi(end + 1);
    places = places < 0 ? 0 : places > PLACES_MAX ? PLACES_MAX : places;
    end = out + snprintf(out, TEXT_NUMBER_BYTES, "%.*f", places, x);
    while (places > 0 && end[-1] == '0')
        *--end = '\0';
    if (end[-1] == '.')
        *--end = '\0';
    if (strcmp(out, "-0") == 0)
        snprintf(out, TEXT_NUMBER_BYTES, "0");
    return out;
}
