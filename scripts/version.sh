#!/bin/sh
# Print the version that include/afmoe.h states: the header is the one place.
sed -n 's/.*AFMOE_VERSION_MAJOR = \([0-9]*\), AFMOE_VERSION_MINOR = \([0-9]*\), AFMOE_VERSION_PATCH = \([0-9]*\).*/\1.\2.\3/p' \
  "$(dirname "$0")/../include/afmoe.h"
