// SPDX-License-Identifier: Apache-2.0
/* Whether the updates of a recorded run are real. A learning rate that is too small, or gradients
 * that overflow, leave the weights as they were, and then a proof shows nothing about updates. */
#ifndef TSR_PROVE_UPDATES_H
#define TSR_PROVE_UPDATES_H
#include "prove/recorded_run.h"

typedef struct {
  int steps;             /* that update */
  bool is_finite;        /* their losses are */
  int trained;           /* parameters that have a gradient in one of them, other than zero */
  int changed;           /* of these, those of which a bit is another one after the last step */
  const tsr_param *kept; /* the first that has not changed; NULL: all have */
  int cancelled;         /* others that have not changed, whose gradients have cancelled out */
  const tsr_param *first_cancelled;
} tsr_updates;

/* A gradient has cancelled out, as that of a key's bias does, where it is below the tolerance of
 * the comparison with the interpreter, or in half precision below what its rounding leaves. */
tsr_updates tsr_updates_of(const tsr_state *state);
static inline bool tsr_updates_are_real(const tsr_updates *u) { return u->steps && !u->kept; }

/* Runs `run` with the numbers of `how`; where its updates are not real, with larger learning rates
 * and smaller loss scales, until they are; or with those of which most parameters change and the
 * losses are numbers. `how` is then what both runs take. Without an optimizer there are no updates,
 * and the first run is what remains. */
bool tsr_updates_run(
    tsr_arena *arena, const tsr_prove_run *run, tsr_recording *how, tsr_state *ret_state,
    tsr_diags *diags);

/* Appends a line to `text`; a failure where updates are not real. */
bool tsr_updates_report(
    const tsr_config *config, const tsr_state *state, const tsr_recording *how, tsr_text *text,
    tsr_diags *diags);

#endif
