/* info_errors.c - symm-info errors: every error text of the library, as written in the sources. The
 * build makes errors.inc from them (scripts/errors.awk). Main thread, no lock. */
#include <stdio.h>

#include "info.h"

static const struct {
    const char *code, *function, *at, *text;
} errors[] = {
#include "errors.inc"
};

void info_errors(void) {
    info_head("Errors: code, function, place, text");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        printf("  %-19s %-31s %-37s %s\n", errors[i].code, errors[i].function, errors[i].at,
               errors[i].text);
}
