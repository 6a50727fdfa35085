// SPDX-License-Identifier: Apache-2.0
#include "train/loss_scale.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float TESSERA_GROWTH = 1.0001f;

void tsr_loss_scale_init(
    tsr_loss_scale *loss_scale, tsr_loss_scale_mode mode, float init, int64_t interval) {
  assert(isfinite(init) && init >= TSR_LOSS_SCALE_MIN);
  assert(mode == TSR_LOSS_SCALE_INTERVAL ? interval >= 1 : init <= TSR_LOSS_SCALE_MAX);
  *loss_scale = (tsr_loss_scale){.mode = mode, .scale = init, .interval = interval};
}

void tsr_loss_scale_text(float scale, char ret_text[32]) {
  int digits = scale < 1e9f && scale == floorf(scale) ? 9 : 6;
  do snprintf(ret_text, 32, "%.*g", digits, (double)scale);
  while (strtof(ret_text, NULL) != scale && digits++ < 9);
}

static void grow(tsr_loss_scale *s) {
  s->good_steps++;
  if (s->mode == TSR_LOSS_SCALE_TESSERA) {
    s->scale = fminf(s->scale * TESSERA_GROWTH, TSR_LOSS_SCALE_MAX);
  } else if (s->good_steps >= s->interval) {
    s->good_steps = 0;
    if (isfinite(s->scale * 2)) s->scale *= 2;
  }
}

void tsr_loss_scale_next(tsr_loss_scale *loss_scale, bool overflow) {
  if (overflow) {
    loss_scale->scale = fmaxf(loss_scale->scale / 2, TSR_LOSS_SCALE_MIN);
    loss_scale->good_steps = 0;
  } else {
    grow(loss_scale);
  }
}
