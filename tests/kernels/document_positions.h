// SPDX-License-Identifier: Apache-2.0
/* Positions (2, 111) inside documents of 30, 1, 1, 70 and 9 tokens, and of one of 111. */
#ifndef TSR_TESTS_KERNELS_DOCUMENT_POSITIONS_H
#define TSR_TESTS_KERNELS_DOCUMENT_POSITIONS_H
#include <stdint.h>

static int32_t document_positions[2 * 111];

static void make_positions(void) {
  static const int lengths[] = {30, 1, 1, 70, 9, 111};
  int32_t *at = document_positions;
  for (int d = 0; d < 6; d++)
    for (int i = 0; i < lengths[d]; i++) *at++ = i;
}

#endif
