// SPDX-License-Identifier: Apache-2.0
/* What collectives are by their definition, element by element: an oracle that shares nothing with
 * the program, neither the order of a sum nor where an element lies. */
#ifndef TSR_TESTS_COMM_COLLECTIVE_ORACLE_H
#define TSR_TESTS_COMM_COLLECTIVE_ORACLE_H
#include "comm/collective.h"

/* Element `at` of summands or sums; and a number that becomes it, in half precision the nearest one,
 * of two the even one. */
float collective_oracle_read(tsr_dtype dtype, const void *x, int64_t at);
void collective_oracle_write(tsr_dtype dtype, void *x, int64_t at, float number);
/* Gives the members' outs what they would get of a sum that is `whole`. */
void collective_oracle_place(const tsr_collective *c, const float *whole);
/* How many elements of `out` are not, bit for bit, what `in` makes them, and `before`, a whole tensor,
 * where the sum is onto it. Of tensors of many
 * elements some are looked at, at equal distances. */
int64_t collective_oracle_differences(const tsr_collective *c, const float *before);

#endif
