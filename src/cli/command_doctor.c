// SPDX-License-Identifier: Apache-2.0
/* The command `doctor`. */
#include "cli/console.h"
#include "cli/doctor/doctor.h"

int app_run_doctor(app *a) {
  tsr_text text = {0};
  setup s = {0};
  bool well = true, ok = a->options.topology ? tsr_doctor_topology(a->arena, &text, a->diags)
                                             : setup_choose_cpu(a, &s);
  if (ok && !a->options.topology) well = tsr_doctor(a->arena, s.compute.kernels, &text);
  console_print(&text);
  int code = console_finish(a, ok);
  return code ? code : !well;
}
