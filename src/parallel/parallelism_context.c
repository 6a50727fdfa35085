// SPDX-License-Identifier: Apache-2.0
/* tt-train's process-wide ParallelismContext: the device, then the context, each opened once. */
#include "parallel/parallel.h"

static bool device_is_open;
static const tsr_parallel *context;

bool tsr_parallelism_device_open(tsr_diags *diags) {
  if (device_is_open)
    return tsr_diag_error(diags, TSR_NOWHERE, "The device is already initialized.");
  return device_is_open = true;
}

bool tsr_parallelism_context_open(const tsr_parallel *p, tsr_diags *diags) {
  if (!device_is_open) return tsr_diag_error(diags, TSR_NOWHERE, "The device is not initialized.");
  if (context) {
    return tsr_diag_error(diags, TSR_NOWHERE, "ParallelismContext is already initialized.");
  }
  context = p;
  return true;
}

bool tsr_parallelism_context_get(const tsr_parallel **ret_parallel, tsr_diags *diags) {
  if (!context) {
    return tsr_diag_error(diags, TSR_NOWHERE, "ParallelismContext is not initialized.");
  }
  *ret_parallel = context;
  return true;
}

bool tsr_parallelism_context_size(tsr_axis axis, int *ret_size, tsr_diags *diags) {
  const tsr_parallel *p;
  if (!tsr_parallelism_context_get(&p, diags)) return false;
  *ret_size = p->size[axis];
  return true;
}

void tsr_parallelism_context_close(void) {
  context = NULL;
  device_is_open = false;
}
