// SPDX-License-Identifier: Apache-2.0
/* What a proof cannot show, for the end of its report: what only the full size has, what both runs
 * have in common, and what a run in one process does not do. */
#ifndef TSR_PROVE_NOT_SHOWN_H
#define TSR_PROVE_NOT_SHOWN_H
#include "prove/reduced_run.h"

/* The sizes of a rank's program that kernels treat in pieces, each the largest of all tasks. */
typedef struct {
  const char *tensor; /* the largest one, and its size */
  int64_t elements, bytes;
  int large;         /* tensors of 2^31 elements or bytes and more */
  int64_t segment;   /* bytes of the largest one, into which offsets point */
  int64_t strips;    /* of a GEMM */
  int64_t terms;     /* that a GEMM of a linear layer adds */
  int64_t positions; /* of the keys of attention */
  int64_t padding;   /* behind the real indices of a parameter's dimension */
  int64_t items;     /* rows or elements that a task deals to threads */
} tsr_program_extent;

tsr_program_extent tsr_program_extent_of(const tsr_programs *programs);

void tsr_not_shown_print(
    const tsr_prove_request *request, const tsr_reduced_run *plan, tsr_text *text);

#endif
