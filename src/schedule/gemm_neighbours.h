// SPDX-License-Identifier: Apache-2.0
/* Which values the memory plan should put one behind another: operands of a batch of GEMMs
 * (fuse.h) that one task writes, so that they lie at equal distances. */
#ifndef TSR_SCHEDULE_GEMM_NEIGHBOURS_H
#define TSR_SCHEDULE_GEMM_NEIGHBOURS_H
#include "schedule/program.h"

typedef struct {
  int *next;     /* per value: the one that lies behind it; -1: none */
  bool *follows; /* per value: it lies behind another one */
} tsr_gemm_neighbours;

/* The results of a batch, and its operands but the shared one, have one order: that of the values
 * of the operands that differ. */
tsr_gemm_neighbours tsr_gemm_neighbours_of(const tsr_program *program);

#endif
