// SPDX-License-Identifier: Apache-2.0
/* Linked with the program's objects and -Wl,--wrap=tsr_in_process_run: the sum whose number, from 1,
 * is in TESSERA_UNORDERED takes the summands of its members 1 and 2 in each other's place, as a
 * collective whose order depends on timing would. */
#include "comm/engine_local.h"
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 8 };

void __real_tsr_in_process_run(const tsr_device *, const tsr_step_list *, const tsr_collective *);
void __wrap_tsr_in_process_run(const tsr_device *, const tsr_step_list *, const tsr_collective *);

void __wrap_tsr_in_process_run(
    const tsr_device *device, const tsr_step_list *list, const tsr_collective *c) {
  static long sums;
  const char *number = getenv("TESSERA_UNORDERED");
  bool adds =
      c->op == TSR_OP_ALL_REDUCE || c->op == TSR_OP_REDUCE_SCATTER || c->op == TSR_OP_REDUCE;
  float *in[MEMBERS_MAX];
  tsr_collective unordered = *c;
  if (adds && number && ++sums == atol(number) && c->members > 2 && c->members <= MEMBERS_MAX) {
    memcpy(in, c->in, (size_t)c->members * sizeof *in);
    in[1] = c->in[2];
    in[2] = c->in[1];
    unordered.in = in;
  }
  __real_tsr_in_process_run(device, list, &unordered);
}
