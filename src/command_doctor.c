/* The command `doctor`. */
#include "app.h"
#include "doctor/doctor.h"

int app_run_doctor(app *a) {
  tsr_text text = {0};
  bool well = true,
       ok = a->cli.topology ? tsr_doctor_topology(a->arena, &text, a->diags) : app_choose_device(a);
  if (ok && !a->cli.topology) well = tsr_doctor(a->arena, a->kernels, &text);
  app_print(&text);
  int code = app_finish(a, ok);
  return code ? code : !well;
}
