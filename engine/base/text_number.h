/* base/text_number.h - numbers as people read them: without an exponent.   Threads: any. */
#ifndef BASE_TEXT_NUMBER_H
#define BASE_TEXT_NUMBER_H

/* A number for people: rounded to `digits` significant digits, all digits before the point kept,
 * never with an exponent: "0.000012", "12.35", "123456". What is 0 to 12 places is "0". */
#define TEXT_NUMBER_BYTES 48
const char *text_number(char out[TEXT_NUMBER_BYTES], double x, int digits);
/* The same, which lasts as long as the block that it stands in. */
#define TEXT_NUMBER(x, digits) text_number((char[TEXT_NUMBER_BYTES]){0}, x, digits)

#endif
