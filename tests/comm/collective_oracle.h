// SPDX-License-Identifier: Apache-2.0
/* What collectives are by their definition, element by element: an oracle that shares nothing with
 * the program, neither the order of a sum nor where an element lies. */
#ifndef TSR_TESTS_COMM_COLLECTIVE_ORACLE_H
#define TSR_TESTS_COMM_COLLECTIVE_ORACLE_H
#include "comm/collective.h"

/* How many elements of `out` are not, bit for bit, what `in` makes them. Of tensors of many
 * elements some are looked at, at equal distances. */
int64_t collective_oracle_differences(const tsr_collective *c);

#endif
