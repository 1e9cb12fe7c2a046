/* cmocka with the headers it wants before it. */
#ifndef AFMOE_TESTS_CMOCKA_ALL_H
#define AFMOE_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#endif
