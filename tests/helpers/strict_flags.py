"""The warnings that embedders' compilers are run with."""

STRICT = ("-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual "
          "-Wstrict-prototypes -Wmissing-prototypes -Wdouble-promotion -Wundef -Wvla -pedantic "
          "-Werror")
