// SPDX-License-Identifier: Apache-2.0
/* Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018), for gradients in
 * fp16: the loss is multiplied by `scale` so that small gradients do not vanish, and gradients are
 * multiplied by 1/scale before they are used. A step whose gradients hold an infinity or a NaN (an
 * overflow) changes no weight and no state, and the scale is halved; as long as steps are good, it
 * grows. As with torch's GradScaler such a step is none to the optimizer: Adam's t counts updates.
 * To the learning rate and the data it is one.
 *
 * What this means for bits: with a scale that is a power of two (`interval` from such an init),
 * both multiplications are exact as long as nothing overflows or becomes subnormal, so the
 * gradients have the bits that they have without scaling. `tessera` grows by 1.0001, so its scale
 * is no power of two: 1/scale is rounded to f32, every product with it is rounded again, and the
 * scaled gradients are rounded elsewhere than the plain ones. Then the bits of the weights depend
 * on the scale of every step, thus on when overflows were; not on the mesh or the number of
 * threads, as long as the gradients and the overflows do not. To resume with the same bits, a
 * checkpoint holds the whole struct below. */
#ifndef TSR_TRAIN_LOSS_SCALE_H
#define TSR_TRAIN_LOSS_SCALE_H
#include <stdbool.h>
#include <stdint.h>

enum { TSR_LOSS_SCALE_MIN = 1, TSR_LOSS_SCALE_MAX = 65536 /* of tessera */ };

typedef enum {
  /* times 1.0001 after every good step, in f32, up to TSR_LOSS_SCALE_MAX */
  TSR_LOSS_SCALE_TESSERA,
  /* twice as much after `interval` good steps in a row, as torch's GradScaler (2000 there), as long
   * as that is finite */
  TSR_LOSS_SCALE_INTERVAL,
} tsr_loss_scale_mode;

typedef struct {
  tsr_loss_scale_mode mode;
  float scale;        /* of the next step; never below TSR_LOSS_SCALE_MIN */
  int64_t interval;   /* >= 1; tessera does not read it */
  int64_t good_steps; /* in a row since the last overflow or doubling */
} tsr_loss_scale;

/* init is finite and of TSR_LOSS_SCALE_MIN at least; of tessera, TSR_LOSS_SCALE_MAX at most. */
void tsr_loss_scale_init(
    tsr_loss_scale *loss_scale, tsr_loss_scale_mode mode, float init, int64_t interval);

/* As few digits as give the scale back. */
void tsr_loss_scale_text(float scale, char ret_text[32]);

/* After a step, which had an overflow or was good: the next step's scale. */
void tsr_loss_scale_next(tsr_loss_scale *loss_scale, bool overflow);

#endif
