// SPDX-License-Identifier: Apache-2.0
#include "train/step_scalars.h"
#include <math.h>
#include <string.h>

void tsr_step_scalars_make(
    const tsr_config_optimizer *o, const tsr_step_facts *f, float ret[TSR_SCALARS]) {
  double n = (double)(f->updates + 1);
  memset(ret, 0, sizeof *ret * TSR_SCALARS);
  ret[TSR_SCALAR_LR] = (float)f->lr;
  ret[TSR_SCALAR_CORRECTION1] = (float)(1 - pow(o->beta1, n));
  ret[TSR_SCALAR_CORRECTION2] = (float)(1 - pow(o->beta2, n));
  ret[TSR_SCALAR_INV_COUNT] = f->targets ? (float)(1 / (double)f->targets) : 0;
  ret[TSR_SCALAR_FIRST] = f->updates == 0;
  ret[TSR_SCALAR_LOSS_SCALE] = f->loss_scale;
}
