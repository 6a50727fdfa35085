/* The command `doctor`. */
#include "app.h"
#include "doctor/doctor.h"

int app_run_doctor(app *a) {
  tsr_text text = {0};
  bool well = true;
  if (a->cli.topology) tsr_doctor_topology(a->arena, &text, a->diags);
  else if (app_choose_device(a)) well = tsr_doctor(a->arena, a->kernels, &text);
  app_print(&text);
  int code = app_finish(a);
  return code ? code : !well;
}
