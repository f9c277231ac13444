/* What main.zig takes of C: `zig translate-c` makes a module of it. */
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"
